// The product in fp32: every element of C is one chain of fmaf in the order of k.
//
// A warp is 4 x 8 lanes.  Lanes alternate along the rows of a tile of rows; along a tile of columns, and in C, a lane
// has runs of four columns.  Eight lanes that read at the same time use all banks once.  With 8 x 8 sums per thread,
// there are 16 FFMA for each 16 bytes read.
#pragma once
#include "implicit_gemm.cuh"
#include "patch_rows.cuh"

namespace lm {

// The shared memory of sm_75 is too small for several large blocks.
constexpr bool HAS_ONE_LARGE = LM_ARCH < 800;

using T128x128 = Tile<128, 128, 32, 64, HAS_ONE_LARGE ? 1 : 2>;
using T128x64 = Tile<128, 64, 32, 64, 3>;
using T64x64 = Tile<64, 64, 32, 64, HAS_ONE_LARGE ? 2 : 6>;
using T128x32 = Tile<128, 32, 32, 32, 3>;
using T64x32 = Tile<64, 32, 32, 32, 6>;

template <class T, bool A_ROWS, bool B_ROWS, class Patch = NoPatch>
struct Ffma {
    static constexpr int STAGES = 2, STAGE_DEPTH = DEPTH;
    static constexpr int ROWS = T::WARP_M / 4, COLUMNS = T::WARP_N / 8;
    static constexpr int LANES = 8;
    static constexpr bool ROWS_IN_REGISTERS = true;
    static constexpr int COPIES_AT_ONCE = 2;
    static constexpr bool KEEPS_PLACES = true;
    static_assert(A_ROWS || !B_ROWS, "no product needs A in columns and B in rows");

    float sum[ROWS][COLUMNS] = {};
    Patch patch;

    // Returns the column of B in this row of a tile of rows: a lane's four are eight rows apart.
    LM_MEMBER static int column_of_row(int row) { return row / 32 * 32 + row % 8 * 4 + row / 8 % 4; }

    LM_MEMBER int m_of(int i) const {
        const int lane = lane_of_warp() / 8;
        return warp_m<T>() + (A_ROWS ? 4 * i + lane : i / 4 * 16 + lane * 4 + i % 4);
    }
    LM_MEMBER int n_of(int j) const { return warp_n<T>() + lane_of_warp() % 8 * 4 + (j / 4 * 32 + j % 4); }
    LM_MEMBER float at(int i, int j) const { return sum[i][j]; }
    LM_MEMBER void set(int i, int j, float value) { sum[i][j] = value; }

    LM_MEMBER void arrange() {}
    LM_MEMBER void begin(const float*) {}

    template <class Copies, class Turn>
    LM_MEMBER void add(const float* stage, Copies copies, Turn turn) {
        copies(0, 1);
        const float* a_tile = stage + warp_m<T>() * (A_ROWS ? DEPTH : 1);
        const float* b_tile = stage + T::A_FLOATS + warp_n<T>() * (B_ROWS ? DEPTH : 1);
#pragma unroll 1
        for (int chunk = 0; chunk < DEPTH / 4; ++chunk) {
            if constexpr (B_ROWS)
                add_rows(a_tile, b_tile, chunk);
            else
                add_columns(a_tile, b_tile, chunk);
        }
        if constexpr (Patch::READS_PATCH) patch.advance();
        turn();
    }

  private:
    // Returns the place in a warp's tile of rows of four k's, from 4 chunk on, of row `lane + LANES i`.
    template <int LANES>
    LM_MEMBER static int row_chunk(int lane, int chunk, int i) {
        static_assert(LANES == 4 || LANES == 8, "the swizzle of row `lane + LANES i` is written out for these");
        return (lane + LANES * i) * DEPTH + (LANES == 8 ? chunk ^ lane : chunk ^ lane ^ (i & 1) * 4) * 4;
    }

    LM_MEMBER void add_rows(const float* a_tile, const float* b_tile, int chunk) {
        const int lane_m = lane_of_warp() / 8, lane_n = lane_of_warp() % 8;
        float a[ROWS][4];
        if constexpr (Patch::READS_PATCH) {
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const TapPlace tap = patch.taps[4 * chunk + k];
#pragma unroll
                for (int i = 0; i < ROWS; ++i) a[i][k] = patch.at(i, tap);
            }
        } else {
#pragma unroll
            for (int i = 0; i < ROWS; ++i) load<4>(a[i], a_tile + row_chunk<4>(lane_m, chunk, i));
        }
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
            float b[4];
            load<4>(b, b_tile + row_chunk<8>(lane_n, chunk, j));
#pragma unroll
            for (int k = 0; k < 4; ++k)
#pragma unroll
                for (int i = 0; i < ROWS; ++i) sum[i][j] = fmaf(a[i][k], b[k], sum[i][j]);
        }
    }

    // Adds two k's at a time: a whole chunk would not fit into the registers with the sums.  Element (k, 4 c + e) of a
    // tile of columns lies in chunk c ^ k % 4, with k = 4 chunk + 2 half + step.
    LM_MEMBER void add_columns(const float* a_tile, const float* b_tile, int chunk) {
        const int lane_m = lane_of_warp() / 8, lane_n = lane_of_warp() % 8;
#pragma unroll 1
        for (int half = 0; half < 2; ++half) {
            const float* a_row = a_tile + (4 * chunk + 2 * half) * T::M;
            const float* b_row = b_tile + (4 * chunk + 2 * half) * T::N;
            float a[2][ROWS];
            if constexpr (A_ROWS) {
#pragma unroll
                for (int i = 0; i < ROWS; ++i) {
                    float pair[2];
                    load<2>(pair, a_tile + row_chunk<4>(lane_m, chunk, i) + 2 * half);
                    a[0][i] = pair[0], a[1][i] = pair[1];
                }
            }
#pragma unroll
            for (int step = 0; step < 2; ++step) {
                float b[COLUMNS];
                if constexpr (!A_ROWS) {
                    const int lane = (lane_m ^ (2 * half + step)) * 4;
#pragma unroll
                    for (int i = 0; i < ROWS; i += 4) load<4>(four(a[step], i), a_row + step * T::M + lane + i * 4);
                }
                const int lane = (lane_n ^ (2 * half + step)) * 4;
#pragma unroll
                for (int j = 0; j < COLUMNS; j += 4) load<4>(four(b, j), b_row + step * T::N + lane + 8 * j);
#pragma unroll
                for (int i = 0; i < ROWS; ++i)
#pragma unroll
                    for (int j = 0; j < COLUMNS; ++j) sum[i][j] = fmaf(a[step][i], b[j], sum[i][j]);
            }
        }
    }
};

template <class T>
using FfmaOfPatch = Ffma<T, true, true, PatchRows<T::WARP_M / 4>>;

}  // namespace lm
