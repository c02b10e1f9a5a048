// conv_dgrad_sums_*: conv_dgrad, whose epilogue also sums its result for backward of the BatchNorm before it
// (gradient_sums.cuh).
//   image [N,H,W,C], parts [units][2][C] float written     out [N,Ho,Wo,K], weights [K,kh,kw,C/g], x [N,H,W,C] read
//
//   launch   as conv_dgrad, of tiles of whole units
//   traffic  as conv_dgrad, and x once
//   assumes  as _v4 or _v8; one phase, so that rows of the tile are consecutive pixels
//   source   Caffe batch_norm_layer.cu, Backward_gpu: the sums over dy and over dy * x that it begins with
#pragma once
#include "conv.cuh"
#include "gradient_sums.cuh"

namespace lm {

template <class E>
struct NormGradient {
    float* parts;          // [units][2][C] written
    const E* x;            // [N,H,W,C], which the BatchNorm read
    const float* mean;     // [C]
    const float* inv_std;  // [C]
    AffineRelu epilogue;
};

template <class E, class Weights = float>
struct ConvDgradSumsArgs {
    ConvDgradArgs<E, Weights> dgrad;
    NormGradient<E> norm;
};

// The epilogue's shared memory: the tile of x, as in OwnRuns; mean, inv_std, factor and bias of each column; and the
// sums of each group of rows.  The host reserves as much (products/gemm_tiles.py).
template <class T>
struct SumsMemory {
    static constexpr int NUMBERS = 4;

    float *numbers, *groups;  // [NUMBERS][T::N], [groups of the tile][GRADIENT_TERMS][T::N]

    LM_MEMBER explicit SumsMemory(float* shared) : numbers(shared + T::M * T::N), groups(numbers + NUMBERS * T::N) {}
};

// Starts the copies of the operands of each column.
template <class T, class E>
LM_FN void copy_numbers(float* to, const NormGradient<E>& norm, int channel, int columns) {
    constexpr int CHUNKS = T::N / 4;
    static_assert(SumsMemory<T>::NUMBERS * CHUNKS <= T::THREADS, "a thread has a copy");
    const int number = static_cast<int>(threadIdx.x) / CHUNKS, n = static_cast<int>(threadIdx.x) % CHUNKS * 4;
    if (number >= SumsMemory<T>::NUMBERS) return;
    const float* from = number == 0   ? norm.mean
                        : number == 1 ? norm.inv_std
                        : number == 2 ? norm.epilogue.factor
                                      : norm.epilogue.bias;
    async_copy<16>(to + number * T::N + n, from + channel + n, n < columns && (number < 2 || norm.epilogue.relu));
}

// Computes the sums of group number `q` of the warp's rows; in absent rows the tile and x are zeros.  Called by all
// lanes.
template <class T, class E, class Product>
LM_FN void sum_group(const Product& product, const OwnRuns<T, Product>& x_runs, const SumsMemory<T>& memory,
                     const AffineRelu& epilogue, int q) {
    constexpr int EACH = Product::LANES, AT_ONCE = 4, PARTS = EACH / AT_ONCE;  // rows of a group that a lane has
    constexpr int RUN = PARTS > 1 ? 2 : 4;  // columns side by side: FFMA has no registers for more
    constexpr int SUMS = GRADIENT_TERMS * RUN, LEFT = SUMS * EACH / WARP;
    static_assert(PARTS == 1 || PARTS == 2, "partial sums of two parts are added in the order of the tree");
    float* group = memory.groups + GRADIENT_TERMS * (warp_m<T>() / GROUP_ROWS + q) * T::N;
#pragma unroll
    for (int j = 0; j < Product::COLUMNS; j += RUN) {
        const int n = product.n_of(j);
        const float* numbers = memory.numbers + n;
        const TermsOfColumns<RUN> terms_of(
            numbers, numbers + T::N, {numbers + 2 * T::N, numbers + 3 * T::N, epilogue.relu, epilogue.largest_zero});
        float sums[SUMS];
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {  // of rows PARTS apart, which are neighbours in the tree
            float x[AT_ONCE][RUN];
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) x_runs.template take<E>(x[i], q * EACH + i * PARTS + part, j);
#pragma unroll
            for (int e = 0; e < RUN; ++e) {
                float terms[GRADIENT_TERMS][AT_ONCE];
#pragma unroll
                for (int i = 0; i < AT_ONCE; ++i) {
                    float y;
                    const float stored = product.at(q * EACH + i * PARTS + part, j + e);
                    terms[0][i] = terms_of.gradient(e, stored, x[i][e], y);
                    terms[1][i] = terms[0][i] * y;
                }
#pragma unroll
                for (int k = 0; k < GRADIENT_TERMS; ++k) {
                    const float sum = sum_apart(terms[k]);
                    sums[k * RUN + e] = part == 0 ? sum : sums[k * RUN + e] + sum;
                }
            }
        }
        const int its = share_lanes<EACH>(sums);
        store<LEFT>(group + its / RUN * T::N + n + its % RUN, part<LEFT>(sums, 0));
    }
}

// Stores the sums of the first column and unit at parts[0] and parts[pitch], those of the next unit 2 pitch after.
template <class T>
LM_FN void store_unit_sums(const float* of_groups, float* parts, int pitch, int rows, int columns) {
    static_assert(T::M / UNIT_ROWS * T::N <= T::THREADS, "a thread has a column of a unit");
    const int n = static_cast<int>(threadIdx.x) % T::N, unit = static_cast<int>(threadIdx.x) / T::N;
    if (unit * UNIT_ROWS >= min(rows, T::M) || n >= columns) return;
    const float* groups = of_groups + GRADIENT_TERMS * unit * GROUPS * T::N + n;
#pragma unroll
    for (int k = 0; k < GRADIENT_TERMS; ++k)
        parts[(GRADIENT_TERMS * unit + k) * pitch + n] =
            sum_groups([&](int g) { return groups[(GRADIENT_TERMS * g + k) * T::N]; });
}

// The additional work of conv_dgrad on a tile.  Copies of x start as soon as their place is free, by groups of rows.
template <class T, class Product, class E>
struct SumTile {
    static constexpr bool KEEPS_TILE = true;
    static constexpr int EACH = Product::LANES, WARP_GROUPS = T::WARP_M / GROUP_ROWS;  // of a warp's rows
    static_assert(T::M % UNIT_ROWS == 0 && T::WARP_M % GROUP_ROWS == 0, "a tile has whole units, a warp whole groups");
    static_assert(WARP_GROUPS <= 2, "copies of a group are waited for alone");

    const NormGradient<E>& norm;

    LM_MEMBER void begin(float* shared, const ConvProblem& conv, int n0) const {
        copy_numbers<T>(SumsMemory<T>(shared).numbers, norm, blockIdx.z * conv.channels + n0, conv.channels - n0);
    }

    LM_MEMBER void fetch(const OwnRuns<T, Product>& runs, int i, int j, int at, bool inside) const {
        runs.copy(i, j, norm.x + at, inside);
    }

    LM_MEMBER void fetched(int i) const {
        if ((i + 1) % EACH == 0) async_commit();
    }

    LM_MEMBER void end(const Product& product, float* shared, const ConvProblem& conv, int first, int n0) const {
        const OwnRuns<T, Product> runs(shared);
        const SumsMemory<T> memory(shared);
        const int rows = conv.images * conv.height * conv.width - first;
        async_wait<WARP_GROUPS - 1>();
        block_sync();  // the numbers of all threads are stored
        sum_group<T, E>(product, runs, memory, norm.epilogue, 0);
        if constexpr (WARP_GROUPS > 1) {
            async_wait<0>();
            sum_group<T, E>(product, runs, memory, norm.epilogue, 1);
        }
        block_sync();
        const int pitch = conv.image_pitch, channel = blockIdx.z * conv.channels + n0;
        float* parts = norm.parts + GRADIENT_TERMS * (first / UNIT_ROWS) * pitch + channel;
        store_unit_sums<T>(memory.groups, parts, pitch, rows, conv.channels - n0);
    }
};

#define LM_DGRAD_SUMS_OF(Args, tile, T, Product, V, E)                         \
    LM_KERNEL(conv_dgrad_sums_##tile##_v##V, Args, p, T::THREADS, T::BLOCKS) { \
        using Dgrad = Product<T, true, false>;                                 \
        conv_dgrad<T, Dgrad, V>(p.dgrad, SumTile<T, Dgrad, E>{p.norm});        \
    }

template <class E>
using PackedDgradSumsArgs = ConvDgradSumsArgs<E, E>;

#define LM_DGRAD_SUMS(tile, T, Product, E) LM_DGRAD_SUMS_OF(ConvDgradSumsArgs<E>, tile, T, Product, 4, E)
#define LM_DGRAD_SUMS_PACKED(tile, T, Product, E) LM_DGRAD_SUMS_OF(PackedDgradSumsArgs<E>, tile, T, Product, 8, E)

// All tiles with whole units, which every product has.
#define LM_DGRAD_SUMS_TILES(Product, E)          \
    LM_DGRAD_SUMS(128x128, T128x128, Product, E) \
    LM_DGRAD_SUMS(128x64, T128x64, Product, E)   \
    LM_DGRAD_SUMS(128x32, T128x32, Product, E)

}  // namespace lm
