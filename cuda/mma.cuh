// The product on tensor cores, from the same tiles, accumulated in fp32.
//
//   TF32      operands rounded to nearest, 10 bits of mantissa
//   FP32X3    each operand as big + small, both tf32: small big + big small + big big, of a stage; the sums of stages are
//             added outside the tensor cores, which cut off what they cannot hold of a sum instead of rounding it: over a
//             long K that would leave the precision of tf32
//   BF16      operands rounded to bfloat16, 7 bits of mantissa
//   BF16_PACKED   operands that are bfloat16, from packed tiles
//
// From a tile of fp32 a fragment is always read for eight k's, in the layout of mma m16n8k8: lane 4 g + t has k = t and t + 4.  BF16 takes
// two such fragments as one of m16n8k16: a lane's pair is then (t, t + 4) instead of neighbours, for both operands
// alike, and a sum over k does not mind.
//
// source  Ootomo, Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak
//         performance" (2022), for FP32X3 and its sums outside
//
// 32 columns of C belong to four mma's, column 16 e + 4 t + b to number b and its column 2 t + e: so a lane, which gets
// columns 2 t and 2 t + 1 of each, holds runs of four, and finds runs of four of B in a tile of columns.  The rows of an
// A in columns are dealt out alike, in runs of two mma's and their two halves.
//
// A packed fragment comes by ldmatrix alone, of sixteen k's.  Where both operands are in columns, pairs are (t, t + 4)
// too, since rows along k may be named in any order: so slices, which sum some windows in fp32 tiles, have the bits of
// the whole batch.  Columns of C are in the order of mma then: two lanes exchange pairs of two neighbouring mma's to
// hold runs of four.
#pragma once
#include "implicit_gemm.cuh"
#include "patch_rows.cuh"

namespace lm {

enum class Precision { TF32, FP32X3, BF16, BF16_PACKED };

// Four warps each, or more; 64 x 64 per warp keeps the tensor cores busiest: four or five other instructions per
// product. Few channels use a tile of many rows, weight gradients of few outputs use tiles of many columns.
using T512x64 = Tile<512, 64, 64, 64, 1>;
using T256x128 = Tile<256, 128, 64, 64, 1>;
using T128x256 = Tile<128, 256, 64, 64, 1>;
using T128x192 = Tile<128, 192, 64, 32, 1>;
using T64x192 = Tile<64, 192, 64, 32, 2>;
using T128x128 = Tile<128, 128, 64, 64, 2>;
using T128x64 = Tile<128, 64, 64, 32, 3>;
using T64x64 = Tile<64, 64, 32, 32, 4>;
using T128x32 = Tile<128, 32, 32, 32, 3>;
using T64x32 = Tile<64, 32, 32, 32, 6>;

template <class T, bool A_ROWS, bool B_ROWS, Precision PRECISION, class Patch = NoPatch>
struct Mma {
    static constexpr bool PACKS = PRECISION == Precision::BF16_PACKED;  // tiles
    static constexpr int STAGES = Patch::READS_PATCH ? 2 : 3, STAGE_DEPTH = PACKS ? 2 * DEPTH : DEPTH;
    static constexpr int BLOCKS_M = T::WARP_M / 16, BLOCKS_N = T::WARP_N / 8;  // of 16 x 8
    static constexpr int ROWS = 2 * BLOCKS_M, COLUMNS = 2 * BLOCKS_N;
    static constexpr int LANES = 4;
    // Products by shuffles need the registers for themselves, as do operands in two parts from a patch; for compute
    // capability 10.0 the compiler then finds enough only if steps along k are a loop.
    static constexpr bool AHEAD = LM_ARCH >= 800 && !(PRECISION == Precision::FP32X3 && Patch::READS_PATCH);
    static constexpr int UNROLLED = AHEAD || (LM_ARCH >= 800 && LM_ARCH < 1000) ? 4 : 1;  // at most
    static constexpr bool ROWS_IN_REGISTERS = AHEAD && PRECISION != Precision::FP32X3;
    static constexpr int COPIES_AT_ONCE = PRECISION == Precision::FP32X3 && LM_ARCH < 900 ? 1 : 2;
    static constexpr bool KEEPS_PLACES = PRECISION != Precision::BF16 || T::M <= MAX_ROWS;  // packing takes registers

    static constexpr bool APART = PRECISION == Precision::FP32X3;  // sums of stages

    float sum[BLOCKS_M][BLOCKS_N][4] = {};
    Patch patch;

    // Returns the column of B in this row of a tile of rows.
    LM_MEMBER static int column_of_row(int row) { return PACKS ? row : row / 32 * 32 + run_of(row % 8) + row / 8 % 4; }

    LM_MEMBER int m_of(int i) const {
        const int g = lane_of_warp() / 4;
        return warp_m<T>() + (A_ROWS || PACKS ? 8 * i + g : i / 4 * 32 + i / 2 % 2 * 8 + pair_of(g) + i % 2);
    }
    LM_MEMBER int n_of(int j) const {
        const int t = lane_of_warp() % 4;
        if (PACKS) return warp_n<T>() + t % 2 * 8 + t / 2 * 4 + (j / 4 * 16 + j % 4);
        return warp_n<T>() + run_of(t * 2) + (j / 8 * 32 + run_of(j / 4 % 2) + j % 4);
    }
    LM_MEMBER float at(int i, int j) const { return sum[i / 2][block_of(j)][place_of(i, j)]; }
    LM_MEMBER void set(int i, int j, float value) { sum[i / 2][block_of(j)][place_of(i, j)] = value; }

    // Each lane has columns 2 t and 2 t + 1 of every block.  Of two adjacent blocks, an even lane keeps its columns of the
    // first and exchanges those of the second for columns 2 t + 2 and 2 t + 3 of the first, which the next lane has.
    // That lane, which is odd, keeps its columns of the second block.
    LM_MEMBER void arrange() {
        if constexpr (PACKS) {
            const bool odd = lane_of_warp() % 2 != 0;
#pragma unroll
            for (int i = 0; i < BLOCKS_M; ++i)
#pragma unroll
                for (int j = 0; j < BLOCKS_N; j += 2)
#pragma unroll
                    for (int r = 0; r < 4; ++r) {
                        const float other = shuffle_xor(odd ? sum[i][j][r] : sum[i][j + 1][r], 1);
                        sum[i][j][r] = odd ? other : sum[i][j][r];
                        sum[i][j + 1][r] = odd ? sum[i][j + 1][r] : other;
                    }
        }
    }

    LM_MEMBER void begin(const float* stage) {
        if constexpr (Patch::READS_PATCH) {
            load_taps(0);
            load_patch(0, 0);
        } else {
            load_a(stage, 0, 0);
        }
#pragma unroll
        for (int j = 0; j < BLOCKS_N; j += GROUP_N) load_b(stage, j, 0);
    }

    // Fragments are read one row of blocks ahead of their products; those of the next stage after turn() has ended all
    // reads of this one.
    template <class Copies, class Turn>
    LM_MEMBER void add(const float* stage, Copies copies, Turn turn) {
        const float* next = stage;
#pragma unroll UNROLLED
        for (int k = 0; k < STEPS; ++k) {
            unsigned b_big[BLOCKS_N][2], b_small[BLOCKS_N][2];
#pragma unroll
            for (int j = 0; j < BLOCKS_N; ++j)
#pragma unroll
                for (int r = 0; r < 2; ++r) operand(b_big[j][r], b_small[j][r], b[buffer(k)][j][r]);
#pragma unroll
            for (int i = 0; i < BLOCKS_M; ++i) {
                if (k == STEPS - 1 && i == BLOCKS_M - 1)
                    next = turn();
                else
                    copies(k * BLOCKS_M + i, STEPS * BLOCKS_M - 1);
                if constexpr (AHEAD) read_ahead(stage, next, i, k);
                unsigned a_big[4], a_small[4];
#pragma unroll
                for (int r = 0; r < 4; ++r) operand(a_big[r], a_small[r], a[buffer(k)][i][r]);
                float (&to)[BLOCKS_N][4] = sum_of_stage(i);
                if constexpr (APART) {
                    if (k == 0) clear(to);
#pragma unroll
                    for (int j = 0; j < BLOCKS_N; ++j) mma_tf32(to[j], a_small, b_big[j]);
#pragma unroll
                    for (int j = 0; j < BLOCKS_N; ++j) mma_tf32(to[j], a_big, b_small[j]);
                }
#pragma unroll
                for (int j = 0; j < BLOCKS_N; ++j) {
                    if constexpr (PRECISION == Precision::BF16 || PACKS)
                        mma_bf16(to[j], a_big, b_big[j]);
                    else
                        mma_tf32(to[j], a_big, b_big[j]);
                }
                if constexpr (APART)
                    if (k == STEPS - 1) add_stage(i);
                if constexpr (!AHEAD) read_ahead(stage, next, i, k);
            }
        }
        if constexpr (Patch::READS_PATCH) patch.advance();
    }

  private:
    static constexpr int EIGHTS = PRECISION == Precision::BF16 ? 2 : 1, STEPS = DEPTH / 8 / EIGHTS;  // products along k
    static constexpr int GROUP_N = B_ROWS || PACKS ? 2 : 4;  // blocks of B that are read at once

    // Fragments of two steps along k alternate: packed for BF16, otherwise as in shared memory.
    unsigned a[AHEAD ? 2 : 1][BLOCKS_M][4], b[AHEAD ? 2 : 1][BLOCKS_N][2];
    float stage_sum[APART ? BLOCKS_M : 1][BLOCKS_N][4];
    TapPlace taps[AHEAD ? 2 : 1][Patch::READS_PATCH ? 2 * EIGHTS : 1];

    // Returns the sums that products of row of blocks i are added to.
    LM_MEMBER float (&sum_of_stage(int i)) [BLOCKS_N][4] {
        if constexpr (APART)
            return stage_sum[i];
        else
            return sum[i];
    }

    LM_MEMBER static void clear(float (&sums)[BLOCKS_N][4]) {
#pragma unroll
        for (int j = 0; j < BLOCKS_N; ++j)
#pragma unroll
            for (int r = 0; r < 4; ++r) sums[j][r] = 0.0f;
    }

    LM_MEMBER void add_stage(int i) {
#pragma unroll
        for (int j = 0; j < BLOCKS_N; ++j)
#pragma unroll
            for (int r = 0; r < 4; ++r) sum[i][j][r] += stage_sum[i][j][r];
    }

    // Returns the place of element (i, j) of C among the arranged sums.
    LM_MEMBER static int block_of(int j) { return PACKS ? j / 4 * 2 + j / 2 % 2 : j / 8 * 4 + j % 4; }
    LM_MEMBER static int place_of(int i, int j) { return i % 2 * 2 + (PACKS ? j % 2 : j / 4 % 2); }

    LM_MEMBER static int buffer(int step) { return AHEAD ? step % 2 : 0; }

    // Return the first of a run of four of 32, and of a run of two, for eight lanes: four rows of a tile of columns use
    // all banks once.
    LM_MEMBER static int run_of(int g) { return g % 2 * 16 + g / 2 * 4; }
    LM_MEMBER static int pair_of(int g) { return g % 2 * 2 + g / 2 % 2 * 16 + g / 4 * 4; }

    // Starts the reads that are due during the products of row of blocks i in step k.
    LM_MEMBER void read_ahead(const float* stage, const float* next, int i, int k) {
        const int then = (k + 1) % STEPS;
        if constexpr (Patch::READS_PATCH)
            load_patch((i + 1) % BLOCKS_M, i + 1 < BLOCKS_M ? k : k + 1);
        else if (i + 1 < BLOCKS_M)
            load_a(stage, i + 1, k);
        else
            load_a(k + 1 == STEPS ? next : stage, 0, then);
        // B is read in parts, except at the start of a stage, and unless packing or operands in two parts take the
        // registers; reads of operands that are packed from runs of four are the majority if all are read at once.
        constexpr bool IN_PARTS = AHEAD && (PRECISION == Precision::TF32 || PACKS || !(KEEPS_PLACES || B_ROWS));
#pragma unroll
        for (int j = 0; j < BLOCKS_N; j += GROUP_N)
            if (IN_PARTS && k + 1 < STEPS ? j / GROUP_N * BLOCKS_M / (BLOCKS_N / GROUP_N) == i : i + 1 == BLOCKS_M)
                load_b(k + 1 == STEPS ? next : stage, j, then);
    }

    // The lane's elements of row k + t of a tile of columns, from column `first` + run_of(g), or `first` + pair_of(g), on.
    template <int WIDTH, int N>
    LM_MEMBER static void load_columns(float (&to)[N], const float* tile, int first, int k) {
        const int g = lane_of_warp() / 4, t = lane_of_warp() % 4;
        const int lane = in_columns<WIDTH>(t, N == 4 ? run_of(g) : pair_of(g));
        load<N>(to, tile + (lane ^ first % 32) + first / 32 * 32 + k * WIDTH);
    }

    // Reads four 8 x 8 matrices from a packed tile of columns, from `column` on of step k: k rises from one to the
    // next, or columns do first if COLUMNS_FIRST.
    template <int WIDTH, bool COLUMNS_FIRST>
    LM_MEMBER static void load_packed(unsigned (&to)[4], const float* tile, int first, int column, int step) {
        const int lane = lane_of_warp(), row = lane % 8, low = lane / 8 % 2 * 8, high = lane / 16 * 8;
        const int k = (COLUMNS_FIRST ? high : low) + (A_ROWS ? row : row / 2 + row % 2 * 4);
        const int at = in_packed_columns<WIDTH>(k, first + (COLUMNS_FIRST ? low : high));
        load_matrix<true>(to, tile + (at ^ column / 2) + step * 16 * (WIDTH / 2));
    }

    // Packs two fragments of eight k's, or returns one.
    template <int N>
    LM_MEMBER static void take(unsigned (&fragment)[N], const unsigned (&eights)[EIGHTS][N]) {
#pragma unroll
        for (int r = 0; r < N; ++r) {
            if constexpr (PRECISION == Precision::BF16) {
                const unsigned* x = eights[r / (N / 2)] + r % (N / 2);
                fragment[r] = bf16_pack(__uint_as_float(x[0]), __uint_as_float(x[N / 2]));
            } else {
                fragment[r] = eights[0][r];
            }
        }
    }

    // a0 (g, t)  a1 (g + 8, t)  a2 (g, t + 4)  a3 (g + 8, t + 4) of block i.
    LM_MEMBER void load_a(const float* stage, int i, int step) {
        unsigned eights[EIGHTS][4];
#pragma unroll
        for (int eight = 0; eight < EIGHTS; ++eight) {
            const int k = 8 * (step * EIGHTS + eight);
            if constexpr (A_ROWS) {
                const int lane = lane_of_warp();
                const float* tile = stage + warp_m<T>() * DEPTH;
                load_matrix(eights[eight], tile + 16 * i * DEPTH + (in_rows(lane % 16, lane / 16 * 4) ^ k));
            } else if constexpr (PACKS) {
                load_packed<T::M, true>(eights[eight], stage, warp_m<T>(), 16 * i, step);
            } else {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    float both[2];
                    load_columns<T::M>(both, stage + warp_m<T>(), i / 2 * 32 + i % 2 * 8, k + 4 * half);
#pragma unroll
                    for (int e = 0; e < 2; ++e) eights[eight][2 * half + e] = __float_as_uint(both[e]);
                }
            }
        }
        take(a[buffer(step)][i], eights);
    }

    // Like load_a, from the patch; step STEPS is the first of the next stage.  Places of taps are read a step before.
    LM_MEMBER void load_patch(int i, int step) {
        if (i == 0 && !AHEAD) load_taps(step);
        unsigned eights[EIGHTS][4];
#pragma unroll
        for (int eight = 0; eight < EIGHTS; ++eight)
#pragma unroll
            for (int r = 0; r < 4; ++r)
                eights[eight][r] = __float_as_uint(patch.at(2 * i + r % 2, taps[buffer(step)][2 * eight + r / 2]));
        take(a[buffer(step)][i], eights);
        if (i == 0 && AHEAD) load_taps(step + 1);
    }

    LM_MEMBER void load_taps(int step) {
        const TapPlace* first = patch.taps + (8 * EIGHTS * step + lane_of_warp() % 4);
#pragma unroll
        for (int half = 0; half < 2 * EIGHTS; ++half) taps[buffer(step)][half] = first[4 * half];
    }

    // b0 (t, g)  b1 (t + 4, g) of blocks j to j + GROUP_N - 1.
    LM_MEMBER void load_b(const float* stage, int j, int step) {
        stage += T::A_FLOATS;
        unsigned eights[GROUP_N][EIGHTS][2];
#pragma unroll
        for (int eight = 0; eight < EIGHTS; ++eight) {
            const int k = 8 * (step * EIGHTS + eight);
            if constexpr (B_ROWS) {
                const int lane = lane_of_warp();
                const float* tile = stage + warp_n<T>() * DEPTH;
                unsigned both[4];
                load_matrix(both, tile + 8 * j * DEPTH + (in_rows(lane / 16 * 8 + lane % 8, lane / 8 % 2 * 4) ^ k));
#pragma unroll
                for (int r = 0; r < 4; ++r) eights[r / 2][eight][r % 2] = both[r];
            } else if constexpr (PACKS) {
                unsigned both[4];
                load_packed<T::N, false>(both, stage, warp_n<T>(), 8 * j, step);
#pragma unroll
                for (int r = 0; r < 4; ++r) eights[r / 2][eight][r % 2] = both[r];
            } else {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    float run[4];
                    load_columns<T::N>(run, stage + warp_n<T>(), j / 4 * 32, k + 4 * half);
#pragma unroll
                    for (int e = 0; e < 4; ++e) eights[e][eight][half] = __float_as_uint(run[e]);
                }
            }
        }
#pragma unroll
        for (int each = 0; each < GROUP_N; ++each) take(b[buffer(step)][j + each], eights[each]);
    }

    // Returns the operand of a value, and the operand of its rounding error.
    LM_MEMBER static void operand(unsigned& big, unsigned& small, unsigned x) {
        big = PRECISION == Precision::BF16 || PACKS ? x : tf32_round(__uint_as_float(x));
        if constexpr (PRECISION == Precision::FP32X3)
            small = tf32_round(__uint_as_float(x) - __uint_as_float(big & 0xffffe000u));
    }
};

template <class T, Precision PRECISION>
using MmaOfPatch = Mma<T, true, true, PRECISION, PatchRows<T::WARP_M / 8>>;
template <class T>
using MmaTf32OfPatch = MmaOfPatch<T, Precision::TF32>;
template <class T>
using MmaFp32x3OfPatch = MmaOfPatch<T, Precision::FP32X3>;
template <class T>
using MmaBf16OfPatch = MmaOfPatch<T, Precision::BF16>;
template <class T, bool A_ROWS, bool B_ROWS>
using MmaTf32 = Mma<T, A_ROWS, B_ROWS, Precision::TF32>;
template <class T, bool A_ROWS, bool B_ROWS>
using MmaFp32x3 = Mma<T, A_ROWS, B_ROWS, Precision::FP32X3>;
template <class T, bool A_ROWS, bool B_ROWS>
using MmaBf16 = Mma<T, A_ROWS, B_ROWS, Precision::BF16>;
template <class T, bool A_ROWS, bool B_ROWS>
using MmaBf16Packed = Mma<T, A_ROWS, B_ROWS, Precision::BF16_PACKED>;

}  // namespace lm
