// conv_dgrad_sums: conv_dgrad, and from its epilogue the sums that backward of the BatchNorm before it needs, which would
// read what conv_dgrad writes (gradient_sums.cuh).
//
//   launch   as conv_dgrad, of tiles of whole units
//   traffic  as conv_dgrad, and x once
//   assumes  as _v4; one phase, so that rows of the tile are pixels one after the other; blobs in fp32
#pragma once
#include "conv.cuh"
#include "gradient_sums.cuh"

namespace lm {

struct NormGradient {
    float* parts;          // [units][2][C] written
    const float* x;        // [N,H,W,C], which the BatchNorm read
    const float* mean;     // [C]
    const float* inv_std;  // [C]
    AffineRelu epilogue;
};

struct ConvDgradSumsArgs {
    ConvDgradArgs<float> dgrad;
    NormGradient norm;
};

// The sums of each group of rows of the tile, of which the first `rows` rows are there, into `shared`, which holds the
// ring of stages; the tile has what has been stored.  Element (m, n) of it has x[m pitch + n].  Called by all threads.
template <class T, class Product>
LM_FN void sum_groups_of_tile(const Product& product, float* shared, const NormGradient& norm, const float* x_of_tile,
                              int pitch, int rows, int first_channel, int columns) {
    constexpr int EACH = Product::LANES, AT_ONCE = 4, PARTS = EACH / AT_ONCE;  // rows of a group that a lane has
    constexpr int RUN = PARTS > 1 ? 2 : 4;  // columns side by side: FFMA has no registers for more
    static_assert(PARTS == 1 || PARTS == 2, "partial sums of two parts are added in the order of the tree");
    static_assert(T::M % UNIT_ROWS == 0 && T::WARP_M % GROUP_ROWS == 0, "a tile has whole units, a warp whole groups");
    block_sync();  // no thread reads the last stage any more
#pragma unroll
    for (int j = 0; j < Product::COLUMNS; j += RUN) {
        const int n = product.n_of(j);
        const bool inside = n < columns;
        const TermsOfColumns<RUN> terms_of(norm.mean, norm.inv_std, norm.epilogue, first_channel + n, inside);
#pragma unroll
        for (int q = 0; q < T::WARP_M / GROUP_ROWS; ++q) {
            float sums[GRADIENT_TERMS][RUN];
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {  // of rows PARTS apart, which are neighbours in the tree
                float x[AT_ONCE][RUN];
                bool there[AT_ONCE];
#pragma unroll
                for (int i = 0; i < AT_ONCE; ++i) {
                    const int m = product.m_of(q * EACH + i * PARTS + part);
                    there[i] = inside && m < rows;
                    if (there[i]) load<RUN>(x[i], x_of_tile + m * pitch + n);
                }
#pragma unroll
                for (int e = 0; e < RUN; ++e) {
                    float terms[GRADIENT_TERMS][AT_ONCE];
#pragma unroll
                    for (int i = 0; i < AT_ONCE; ++i) {
                        float y;
                        const float stored = product.at(q * EACH + i * PARTS + part, j + e);
                        const float dy = terms_of.gradient(e, stored, x[i][e], y);
                        terms[0][i] = there[i] ? dy : 0.0f;
                        terms[1][i] = there[i] ? dy * y : 0.0f;
                    }
#pragma unroll
                    for (int k = 0; k < GRADIENT_TERMS; ++k) {
                        const float sum = sum_apart(terms[k]);
                        sums[k][e] = part == 0 ? sum : sums[k][e] + sum;
                    }
                }
            }
#pragma unroll
            for (int k = 0; k < GRADIENT_TERMS; ++k)
#pragma unroll
                for (int e = 0; e < RUN; ++e) sums[k][e] = sum_lanes<EACH>(sums[k][e]);
            if (lane_of_warp() >= Product::LANES) continue;
            float* group = shared + GRADIENT_TERMS * ((warp_m<T>() + q * GROUP_ROWS) / GROUP_ROWS) * T::N + n;
#pragma unroll
            for (int k = 0; k < GRADIENT_TERMS; ++k) store<RUN>(group + k * T::N, sums[k]);
        }
    }
}

// Those of the first column and unit go to parts[0] and parts[pitch], those of the next unit 2 pitch behind.
template <class T>
LM_FN void store_unit_sums(const float* shared, float* parts, int pitch, int rows, int columns) {
    block_sync();
    static_assert(T::M / UNIT_ROWS * T::N <= T::THREADS, "a thread has a column of a unit");
    const int n = static_cast<int>(threadIdx.x) % T::N, unit = static_cast<int>(threadIdx.x) / T::N;
    if (unit * UNIT_ROWS >= min(rows, T::M) || n >= columns) return;
    const float* groups = shared + GRADIENT_TERMS * unit * GROUPS * T::N + n;
#pragma unroll
    for (int k = 0; k < GRADIENT_TERMS; ++k)
        parts[(GRADIENT_TERMS * unit + k) * pitch + n] =
            sum_groups([&](int g) { return groups[(GRADIENT_TERMS * g + k) * T::N]; });
}

// What conv_dgrad does with a tile that it has stored.
template <class T>
struct SumTile {
    static constexpr bool KEEPS_TILE = true;

    const NormGradient& norm;

    template <class Product>
    LM_MEMBER void operator()(const Product& product, float* shared, const ConvProblem& conv, int first, int n0) const {
        const int pitch = conv.image_pitch, channel = blockIdx.z * conv.channels + n0, columns = conv.channels - n0;
        const int rows = conv.images * conv.height * conv.width - first;
        sum_groups_of_tile<T>(product, shared, norm, norm.x + first * pitch + channel, pitch, rows, channel, columns);
        float* parts = norm.parts + GRADIENT_TERMS * (first / UNIT_ROWS) * pitch + channel;
        store_unit_sums<T>(shared, parts, pitch, rows, columns);
    }
};

#define LM_DGRAD_SUMS(tile, T, Product)                                                   \
    LM_KERNEL(conv_dgrad_sums_##tile##_v4, ConvDgradSumsArgs, p, T::THREADS, T::BLOCKS) { \
        conv_dgrad<T, Product<T, true, false>, 4>(p.dgrad, SumTile<T>{p.norm});           \
    }

// All tiles of whole units that every product has.
#define LM_DGRAD_SUMS_TILES(Product)          \
    LM_DGRAD_SUMS(128x128, T128x128, Product) \
    LM_DGRAD_SUMS(128x64, T128x64, Product)   \
    LM_DGRAD_SUMS(128x32, T128x32, Product)

}  // namespace lm
