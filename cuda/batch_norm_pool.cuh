// BatchNorm with its Scale and maybe ReLU, and the MAX pooling behind them, without the blob between.
//
//   forward    batch_statistics -> normalize_pool
//   backward   pooled_gradient_sums -> channel_sums over its parts -> pooled_norm_backward
//   y, argmax [N,Ho,Wo,C] float, byte written     x [N,H,W,C], mean, inv_std, factor, bias [C] float read
//   dx [N,H,W,C] float written or added to        x, dy, argmax [N,Ho,Wo,C] read
//   x, y, dy, dx in 16 bits (element.cuh) in kernels whose names end in the type's: what is normalized, and its
//   gradient, are rounded as if they were stored
//   launch     normalize_pool as pool_max_forward, one thread per four channels of a window; the others as those of
//              batch_norm.cuh, with the gradient gathered as pool_max_backward does
//   traffic    forward 4|x| + 5|y| bytes, backward 8|x| + 10|y| read, 4|x| written: bound by memory
//   assumes    C a multiple of 4, up to 256 taps
//   order      of sums as in batch_norm.cuh and pooling.cu, so the bits are those of the ops apart
//   source     Caffe batch_norm_layer.cu, pooling_layer.cu
#pragma once
#include "batch_norm.cuh"
#include "pooling.cuh"

namespace lm {

template <class T>
struct NormalizePoolArgs {
    PoolArgs<T> pool;  // y, x, argmax
    const float* mean;
    const float* inv_std;
    AffineRelu epilogue;
};

template <int V, class T>
LM_FN void normalize_pool_of(const NormalizePoolArgs<T>& p) {
    max_of_windows<V>(p.pool, [&](float (&x)[V], int c) {
        float mean[V], inv_std[V], factor[V], bias[V];  // the same for all places: loaded once
        load<V>(mean, p.mean + c);
        load<V>(inv_std, p.inv_std + c);
        load<V>(factor, p.epilogue.factor + c);
        load<V>(bias, p.epilogue.bias + c);
#pragma unroll
        for (int v = 0; v < V; ++v) {
            x[v] = (x[v] - mean[v]) * inv_std[v] * factor[v] + bias[v];
            x[v] = as_stored<T>(p.epilogue.relu ? positive(x[v]) : x[v]);
        }
    });
}
LM_KERNEL_OF_ELEMENTS(normalize_pool_v4, NormalizePoolArgs, POOL_THREADS, normalize_pool_of<4>)

// Element i of the gradient of what is pooled, and V - 1 more.
template <int V, class T>
LM_FN void gather_stored(float (&dy)[V], const PoolArgs<T>& pool, unsigned i) {
    gather_gradient<V>(pool, place_of<V>(pool, i / V), dy);
#pragma unroll
    for (int v = 0; v < V; ++v) dy[v] = as_stored<T>(dy[v]);
}

template <class T>
struct PooledSumsArgs {
    float* parts;
    const T* x;
    const float* mean;
    const float* inv_std;
    AffineRelu epilogue;
    PoolArgs<T> pool;  // x: the gradient of what it makes
    Columns at;
    int across, units;
};

template <int V, class T>
LM_FN void load_gradient(float (&dy)[V], const PooledSumsArgs<T>& p, const float* open, int row, int within,
                         int column) {
    if (row < 0)
        load<V>(dy, open + within * p.at.columns + column);
    else
        gather_stored<V>(dy, p.pool, static_cast<unsigned>(row * p.at.columns + column));
}
LM_KERNEL_OF_ELEMENTS(pooled_gradient_sums_v4, PooledSumsArgs, COLUMN_THREADS, gradient_sums_of<4>)

template <class T>
struct PooledBackwardArgs {
    T* dx;
    const T* x;
    const float* mean;
    const float* inv_std;
    const float* sums;
    AffineRelu epilogue;
    PoolArgs<T> pool;  // x: the gradient of what it makes
    Divider by_inner, by_channels;
    int count, accumulate;
    float inv_count;
};

template <int V, class T>
LM_FN void load_gradient(float (&dy)[V], const PooledBackwardArgs<T>& p, unsigned i) {
    gather_stored<V>(dy, p.pool, i);
}
LM_KERNEL_OF_ELEMENTS(pooled_norm_backward_v4, PooledBackwardArgs, 256, batch_norm_backward_of<4>)

}  // namespace lm
