// Sums per channel, as gradients of biases, scales and slopes need them.  With several parts, y is [parts][columns].
//   channel_sums           y[c] = sum of x
//   channel_sums_product   y[c] = sum of x b
//   channel_sums_prelu     y[c] = sum of x b where b <= 0
//   y [parts][columns] float written or added to      x, b [outer][columns][inner] float read
//   launch   grid (ceil(columns / (width V)), parts), block 256
//   traffic  4 |x| bytes: bound by memory
//   assumes  _v4: columns and pitch are multiples of 4, x and y aligned to 16 bytes
//   source   Caffe's products with a vector of ones (base_conv_layer.cpp, scale_layer.cu, prelu_layer.cu), without one
#include "channel_sums.cuh"

using namespace lm;

struct ChannelSumsArgs {
    float* y;
    const float* x;
    const float* b;
    Columns at;
    int accumulate;
};

template <int V, class Term>
LM_FN void channel_sums(const ChannelSumsArgs& p, Term term) {
    sum_columns<1, V>(
        p.at,
        [&](int row, int column, float (&values)[1][V]) {
            const int at = offset_of(p.at, row, column);
            load<V>(values[0], p.x + at);
            term(values[0], p.b + at);
        },
        [&](int column, float (&sums)[1][V]) {
            put<V>(p.y + part_of(p.at) * p.at.columns + column, sums[0], p.accumulate);
        });
}

#define LM_CHANNEL_SUMS(name, V, expression)                     \
    LM_KERNEL(name##_v##V, ChannelSumsArgs, p, COLUMN_THREADS) { \
        channel_sums<V>(p, [](float (&x)[V], const float* at) {  \
            float b[V];                                          \
            load<V>(b, at);                                      \
            for (int e = 0; e < V; ++e) x[e] = expression;       \
        });                                                      \
    }

LM_KERNEL(channel_sums_v4, ChannelSumsArgs, p, COLUMN_THREADS) {
    channel_sums<4>(p, [](float (&)[4], const float*) {});
}
LM_KERNEL(channel_sums_v1, ChannelSumsArgs, p, COLUMN_THREADS) {
    channel_sums<1>(p, [](float (&)[1], const float*) {});
}
LM_CHANNEL_SUMS(channel_sums_product, 4, x[e] * b[e])
LM_CHANNEL_SUMS(channel_sums_product, 1, x[e] * b[e])
LM_CHANNEL_SUMS(channel_sums_prelu, 4, b[e] > 0.0f ? 0.0f : x[e] * b[e])
LM_CHANNEL_SUMS(channel_sums_prelu, 1, b[e] > 0.0f ? 0.0f : x[e] * b[e])
