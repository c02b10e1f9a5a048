// Vectors of length one, times a learned scale: y = w x / n, n = sqrt(sum x^2 + eps).
//   forward    l2norm_sums -> norm_forward
//   backward   l2norm_sums -> (norm_scale_sums -> channel_sums over its parts) -> norm_backward
//   x, y, dy, dx [norms][members][C] float: the channels-last pixels that share a norm lie side by side
//   traffic    forward 8|x| bytes read, 4|x| written; backward 24|x| read, 4|x| written: bound by memory
//   assumes    elements below 2^31
//   order      a thread adds every 32nd or 256th element, then lanes by halving distance, then warps
//   source     layermem/backends/reference/l2norm.py; the SSD fork's normalize_layer.cu
#include "channel_sums.cuh"

using namespace lm;

struct L2NormArgs {
    float* y;  // or dx
    const float* x;
    const float* dy;               // null: forward
    const float* scale;            // [C], or one number
    float* sums;                   // [2][norms]: 1 / n; with dy the sum of w dy x
    Divider by_norm, by_channels;  // elements that share a norm; those that share a scale: 1 where all do
    int norms, count, accumulate;
    float eps;
};

LM_FN float scale_at(const L2NormArgs& p, int i) {
    return p.scale[i - divide(i, p.by_channels) * static_cast<int>(p.by_channels.divisor)];
}

// A lane's part of the sums over norm number `norm`: every `lanes`-th element.
LM_FN float2 sum_every(const L2NormArgs& p, int norm, int lane, int lanes) {
    const int members = p.by_norm.divisor, begin = norm * members;
    float squares = 0, dots = 0;
    for (int i = begin + lane; i < begin + members; i += lanes) {
        squares += p.x[i] * p.x[i];
        if (p.dy != nullptr) dots += scale_at(p, i) * p.dy[i] * p.x[i];
    }
    return make_float2(squares, dots);
}

LM_FN void store_sums(const L2NormArgs& p, int norm, float squares, float dots) {
    p.sums[norm] = 1.0f / sqrtf(squares + p.eps);
    if (p.dy != nullptr) p.sums[p.norms + norm] = dots;
}

// l2norm_sums_of_warp: 1 / n, and backward also sum of dy w x: sums [norms], or [2][norms], float written; x, dy read.
//   launch   one warp a norm: grid ceil(norms / 8), block 256
LM_KERNEL(l2norm_sums_of_warp, L2NormArgs, p, 256) {
    const int norm = blockIdx.x * 8 + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (norm >= p.norms) return;
    const float2 mine = sum_every(p, norm, lane, WARP);
    const float squares = warp_sum(mine.x), dots = warp_sum(mine.y);
    if (lane == 0) store_sums(p, norm, squares, dots);
}

// l2norm_sums_of_block: the same sums [norms], or [2][norms].     launch   one block a norm: grid norms, block 256
LM_KERNEL(l2norm_sums_of_block, L2NormArgs, p, 256) {
    LM_SHARED(float, lanes, [33]);
    const float2 mine = sum_every(p, blockIdx.x, threadIdx.x, 256);
    const float squares = block_sum(mine.x, lanes);
    const float dots = block_sum(mine.y, lanes);
    if (threadIdx.x == 0) store_sums(p, blockIdx.x, squares, dots);
}

// norm_forward, norm_backward: y, or dx, [norms][members][C] float written, dx maybe added to; x, dy and sums read.
//   launch   one thread an element: grid ceil(count / 256), block 256
//   overlay  an element is read before it is written, so y may lie on x, and dx on x or dy
LM_KERNEL(norm_forward, L2NormArgs, p, 256) {
    const unsigned i = blockIdx.x * 256u + threadIdx.x;
    if (i >= static_cast<unsigned>(p.count)) return;
    p.y[i] = p.x[i] * p.sums[divide(i, p.by_norm)] * scale_at(p, i);
}

LM_KERNEL(norm_backward, L2NormArgs, p, 256) {
    const unsigned i = blockIdx.x * 256u + threadIdx.x;
    if (i >= static_cast<unsigned>(p.count)) return;
    const int norm = divide(i, p.by_norm);
    const float inverse = p.sums[norm], along = p.sums[p.norms + norm] * inverse * inverse;
    put(p.y + i, (p.dy[i] * scale_at(p, i) - p.x[i] * along) * inverse, p.accumulate);
}

// norm_scale_sums: y[c] = sum of dy x / n, in parts.
//   y [parts][columns] float written or added to     x, dy [norms][members][C], sums [norms] float read
//   launch   as channel_sums: grid (ceil(columns / (width V)), parts), block 256
struct NormScaleArgs {
    float* y;
    const float* x;
    const float* dy;
    const float* sums;
    Columns at;
    Divider by_norm;
    int accumulate;
};

template <int V>
LM_FN void norm_scale_sums(const NormScaleArgs& p) {
    sum_columns<1, V>(
        p.at, {p.x, p.dy},
        [&](int at, const float (&in)[2][V], float (&values)[1][V]) {
            const float inverse = p.sums[divide(at, p.by_norm)];  // a pixel's channels share a norm
#pragma unroll
            for (int v = 0; v < V; ++v) values[0][v] = in[1][v] * in[0][v] * inverse;
        },
        [&](int column, float (&sums)[1][V]) {
            put<V>(p.y + part_of(p.at) * p.at.columns + column, sums[0], p.accumulate);
        });
}
LM_KERNEL(norm_scale_sums_v4, NormScaleArgs, p, COLUMN_THREADS) { norm_scale_sums<4>(p); }
LM_KERNEL(norm_scale_sums_v1, NormScaleArgs, p, COLUMN_THREADS) { norm_scale_sums<1>(p); }
