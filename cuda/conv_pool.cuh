// conv_fprop_pool: conv_fprop and the MAX pooling of 2 x 2 pixels, two apart, that reads what it makes, without the blob
// between.
//
//   y, argmax [N,Hp,Wp,K] E, byte written    image, weights read as by conv_fprop
//   launch   as conv_fprop, of four rows for each window of the pooling
//   traffic  as conv_fprop, but that 4|y| + |argmax| bytes are written instead of 16|y|: bound by arithmetic
//   assumes  K/g a multiple of 4, N Hp Wp below 2^29; a window at the border may lack pixels, but not its first one
//   rows     pixel (dy, dx) of window q is row 4 q + 2 dy + dx: four lanes of a warp have the same columns of a window.
//            They exchange halves of these twice, until each has the largest of a quarter
//   bits     those of the ops apart: values are rounded as they would be stored, before the largest is taken; the first
//            of equal ones wins, and a NaN never does (pooling.cuh)
//   source   Caffe conv_layer.cu, pooling_layer.cu
#pragma once
#include "conv.cuh"

namespace lm {

constexpr int POOL_TAPS = 4;

template <class Image, class Maps, class Weights>
struct ConvFpropPoolArgs {
    ConvFpropArgs<Image, Maps, Weights> conv;  // maps: the pooled ones; no residual, mask or moments
    unsigned char* argmax;                     // or null
    int pooled_h, pooled_w;                    // windows of the pooling in an image
    int bottom_relu;  // argmax names no tap where the largest is not positive, which is the backward of the ReLU
};

// Takes the larger of two values, of which this lane has one and lane ^ distance the other: N pairs of 2 N, the first N
// for the lane that is `before`.  Bit i is set where the value behind wins.  Called by all lanes.
template <int N>
LM_FN unsigned keep_larger(float (&largest)[N], const float (&values)[2 * N], bool is_before, int distance) {
    unsigned behind_wins = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const float own = is_before ? values[i] : values[N + i];
        const float other = shuffle_xor(is_before ? values[N + i] : values[i], distance);
        const float before = is_before ? own : other, behind = is_before ? other : own;
        const bool wins = behind > before;
        largest[i] = wins ? behind : before;
        behind_wins |= static_cast<unsigned>(wins) << i;
    }
    return behind_wins;
}

// The epilogue, of the tile whose first row is number `first`.  Called by all lanes.
template <class T, class Product, class Image, class Maps, class Weights>
LM_FN void store_pooled(const Product& product, const ConvFpropPoolArgs<Image, Maps, Weights>& p, const int4* windows,
                        int first, int group, int n0) {
    constexpr int LANES = Product::LANES, COLUMNS = Product::COLUMNS, RUN = 4;
    constexpr int TAKEN = POOL_TAPS * RUN, AT_ONCE = TAKEN / COLUMNS;  // values of a lane at once: of so many rows
    static_assert(TAKEN % COLUMNS == 0 && Product::ROWS % AT_ONCE == 0, "of whole rows");
    const ConvProblem& conv = p.conv.problem;
    const int count = conv.images * p.pooled_h * p.pooled_w, first_output = group * conv.outputs;
    const int tap = lane_of_warp() / LANES % POOL_TAPS;
    const bool is_left = tap % 2 == 0, is_above = tap < 2;
    const int its = (is_left ? 0 : TAKEN / 2) + (is_above ? 0 : RUN);  // where the run lies that this lane keeps
    float bias[COLUMNS] = {};
    if (p.conv.epilogue.bias != nullptr) {
#pragma unroll
        for (int j = 0; j < COLUMNS; j += RUN) {
            const int column = n0 + product.n_of(j);
            if (column < conv.outputs) load<RUN>(part<RUN>(bias, j), p.conv.epilogue.bias + first_output + column);
        }
    }
#pragma unroll
    for (int i = 0; i < Product::ROWS; i += AT_ONCE) {
        float values[TAKEN];
#pragma unroll
        for (int e = 0; e < TAKEN; ++e) {
            const float y = product.at(i + e / COLUMNS, e % COLUMNS);
            values[e] = p.conv.epilogue.bias != nullptr ? y + bias[e % COLUMNS] : y;
            if (p.conv.epilogue.relu) values[e] = positive(values[e]);
        }
        round_as<Maps>(values);
#pragma unroll
        for (int r = 0; r < AT_ONCE; ++r) {
            const bool there = windows[product.m_of(i + r)].w >= 0;
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j)
                if (!(there && values[r * COLUMNS + j] > -infinity())) values[r * COLUMNS + j] = -infinity();
        }
        float of_lines[TAKEN / 2], largest[RUN];
        const unsigned right = keep_larger(of_lines, values, is_left, LANES);
        const unsigned others = shuffle_xor(right, 2 * LANES);
        const unsigned below = keep_larger(largest, of_lines, is_above, 2 * LANES);
        const unsigned above_right = (is_above ? right : others) >> its % (TAKEN / 2);
        const unsigned below_right = (is_above ? others : right) >> its % (TAKEN / 2);
        unsigned winners = 0;
#pragma unroll
        for (int e = 0; e < RUN; ++e) {
            unsigned winner = (below >> e & 1u) != 0 ? 2 + (below_right >> e & 1u) : above_right >> e & 1u;
            if (p.bottom_relu && !(largest[e] > 0.0f)) winner = POOL_TAPS;  // no tap
            winners |= winner << 8 * e;
        }
        const int window = (first + product.m_of(i + its / COLUMNS)) / POOL_TAPS;
        const int column = n0 + product.n_of(its % COLUMNS), at = window * conv.maps_pitch + first_output + column;
        if (window < count && column < conv.outputs) {
            store<RUN>(p.conv.maps + at, largest);
            if (p.argmax != nullptr) *reinterpret_cast<unsigned*>(p.argmax + at) = winners;
        }
    }
}

template <class T, class Product, int V, class Image, class Maps, class Weights>
LM_FN void conv_fprop_pool(const ConvFpropPoolArgs<Image, Maps, Weights>& p) {
    LM_DYN_SHARED(float, shared);
    LM_SHARED(int4, windows, [T::M]);  // read again behind the product, which needs the registers
    const ConvProblem& conv = p.conv.problem;
    const Place<T> place(conv.outputs);
    const int group = blockIdx.z, first = place.m, n0 = place.n;
    const int count = conv.images * p.pooled_h * p.pooled_w;
    for (int i = threadIdx.x; i < T::M; i += T::THREADS) {
        const int row = first + i, window = row / POOL_TAPS, line = window / p.pooled_w, image = line / p.pooled_h;
        const int h = (line - image * p.pooled_h) * 2 + row / 2 % 2, w = (window - line * p.pooled_w) * 2 + row % 2;
        const bool there = window < count && h < conv.maps_h && w < conv.maps_w;
        windows[i] = window_at(conv, image, h, w, there ? window : -1);
    }
    block_sync();
    Product product;
    add_fprop<T, V>(product, shared, windows, p.conv, group, n0);
    store_pooled<T>(product, p, windows, first, group, n0);
}

template <class E>
using FpropPoolArgs = ConvFpropPoolArgs<E, E, float>;
template <class E>
using PackedFpropPoolArgs = ConvFpropPoolArgs<E, E, E>;

#define LM_CONV_POOL(tile, T, Product, V, Args)                                \
    LM_KERNEL(conv_fprop_pool_##tile##_v##V, Args, p, T::THREADS, T::BLOCKS) { \
        conv_fprop_pool<T, Product<T, true, true>, V>(p);                      \
    }

// Two tiles of all precisions; of some a larger one reads less from L2.
#define LM_CONV_POOL_TILES(Product, V, Args)          \
    LM_CONV_POOL(128x128, T128x128, Product, V, Args) \
    LM_CONV_POOL(128x64, T128x64, Product, V, Args)

}  // namespace lm
