// Sums per channel, as gradients of biases, scales and slopes need them.  With several parts, y is [parts][columns].  Of
// several frames, which lie one after the other, each has parts of its own: y is [frames][parts][columns].
//   channel_sums           y[c] = sum of x
//   channel_sums_product   y[c] = sum of x b
//   channel_sums_prelu     y[c] = sum of x b where b <= 0
//   y [parts][columns] float written or added to      x, b [outer][columns][inner] float read; of channel_sums, x may
//                                                     have 16 bits
//   launch   channel_sums, channel_sums_*: `width` lanes of V columns across, 256 / width rows down: grid
//            (ceil(columns / (width V)), parts, frames), block 256
//   traffic  4 |x| bytes, or 2: bound by memory
//   assumes  _v4: columns and pitch are multiples of 4, x and y aligned to 4 elements
//   source   Caffe's products with a vector of ones (base_conv_layer.cpp, scale_layer.cu, prelu_layer.cu), without one
#include "channel_sums.cuh"

using namespace lm;

template <class T>
struct ChannelSumsArgs {
    float* y;
    const T* x;
    const T* b;
    Columns at;  // of a frame
    int parts;   // of a frame, in all slices
    int accumulate;
};

template <int V, int INPUTS, class T, class Term>
LM_FN void channel_sums(const ChannelSumsArgs<T>& p, const T* const (&inputs)[INPUTS], Term term) {
    const int frame = blockIdx.z;
    Columns at = p.at;
    at.open += frame * static_cast<int>(gridDim.x) * COLUMN_THREADS * V;
    const T* x[INPUTS];
#pragma unroll
    for (int k = 0; k < INPUTS; ++k) x[k] = inputs[k] + static_cast<long long>(frame * at.here) * at.pitch;
    sum_columns<1, V>(
        at, x,
        [&](int, const float (&in)[INPUTS][V], float (&values)[1][V]) {
#pragma unroll
            for (int v = 0; v < V; ++v) values[0][v] = term(in[0][v], in[INPUTS - 1][v]);
        },
        [&](int column, float (&sums)[1][V]) {
            put<V>(p.y + (frame * p.parts + part_of(at)) * at.columns + column, sums[0], p.accumulate);
        });
}

#define LM_CHANNEL_SUMS(name, V, expression)                                           \
    LM_KERNEL(channel_sums_##name##_v##V, ChannelSumsArgs<float>, p, COLUMN_THREADS) { \
        channel_sums<V>(p, {p.x, p.b}, [](float x, float b) { return expression; });   \
    }

template <int V, class T>
LM_FN void channel_sums(const ChannelSumsArgs<T>& p) {
    channel_sums<V>(p, {p.x}, [](float x, float) { return x; });
}
LM_KERNEL_OF_ELEMENTS(channel_sums_v4, ChannelSumsArgs, COLUMN_THREADS, channel_sums<4>)
LM_KERNEL_OF_ELEMENTS(channel_sums_v1, ChannelSumsArgs, COLUMN_THREADS, channel_sums<1>)
LM_CHANNEL_SUMS(product, 4, x* b)
LM_CHANNEL_SUMS(product, 1, x* b)
LM_CHANNEL_SUMS(prelu, 4, b > 0.0f ? 0.0f : x * b)
LM_CHANNEL_SUMS(prelu, 1, b > 0.0f ? 0.0f : x * b)

// sum_splits: y = sum of `splits` consecutive arrays, always in their order.
//   y [count] float written or added to     parts [splits][count] float read
//   sum_before [count] float read, or null: the sum of the splits before these; may be y
//   open_out [count] float written, or null: the array after the splits, which is incomplete (products/wgrad_slices.py)
//   launch   `width` lanes of V elements across, 256 / width splits down, 4 or 8 times: grid
//            ceil(count / (width V)), block 256.  All threads load splits, and those of the first line add them
//   traffic  4 (splits + 1) bytes per element, and 4 or 8 for `sum_before` and `open_out`: bound by memory
//   assumes  count below 2^31; _v4: a multiple of 4, all arrays aligned to 16 bytes
//   source   the split of a weight gradient in layermem/backends/cuda/products/wgrad.py
struct SplitsArgs {
    float* y;
    const float* sum_before;
    const float* parts;
    float* open_out;
    int count, splits, width, accumulate;
};

template <int V>
LM_FN void sum_splits(const SplitsArgs& p) {
    constexpr int ROWS = IN_FLIGHT<V>;
    LM_SHARED(float, staged, [ROWS * COLUMN_THREADS * V]);
    const int thread = threadIdx.x, lane = thread % p.width, line = thread / p.width, lines = COLUMN_THREADS / p.width;
    const unsigned at = (blockIdx.x * p.width + lane) * V;
    const bool inside = at < static_cast<unsigned>(p.count), adds = inside && line == 0;
    float sum[V] = {};
    if (adds && p.sum_before != nullptr) load<V>(sum, p.sum_before + at);
    for (int begin = 0; begin < p.splits; begin += ROWS * lines) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int split = begin + r * lines + line;
            const bool exists = inside && split < p.splits;
            const float* from = p.parts + static_cast<long long>(exists ? split : 0) * p.count;
            async_copy<4 * V>(staged + (r * COLUMN_THREADS + thread) * V, from + (exists ? at : 0), exists);
        }
        async_commit();
        async_wait<0>();
        block_sync();
        const int rows = adds ? min(ROWS * lines, p.splits - begin) : 0;
#pragma unroll 4
        for (int row = 0; row < rows; ++row) {
            float next[V];
            load<V>(next, staged + (row * p.width + lane) * V);
            const bool is_first = begin + row == 0 && p.sum_before == nullptr;
#pragma unroll
            for (int v = 0; v < V; ++v) sum[v] = is_first ? next[v] : sum[v] + next[v];
        }
        block_sync();
    }
    if (!adds) return;
    put<V>(p.y + at, sum, p.accumulate);
    if (p.open_out == nullptr) return;
    load<V>(sum, p.parts + static_cast<long long>(p.splits) * p.count + at);
    store<V>(p.open_out + at, sum);
}
LM_KERNEL(sum_splits_v4, SplitsArgs, p, COLUMN_THREADS) { sum_splits<4>(p); }
LM_KERNEL(sum_splits_v1, SplitsArgs, p, COLUMN_THREADS) { sum_splits<1>(p); }
