// The matrix engine: C[M,N] = A[M,K] B[K,N], one tile of C a block, with operands gathered on their way into shared memory.
//
//   tile in shared memory     rows     [rows][32 of k]  a row runs along k, as memory does; 128 bytes
//                             columns  [32 of k][width] a row runs along m or n, as memory does
//   order                     k rises by one; every element of C is one chain of fmaf, so no tile changes a bit
//   pipeline                  two stages: while one is multiplied, the next is copied; one barrier a stage
//
// 16-byte chunk j of row r lies at chunk j ^ (r & 7) in a tile of rows and at j ^ ((r & 3) << 1) in one of columns: the
// lanes of a warp then meet different banks, here and in the fragment loads of the tensor-core products.
#pragma once
#include "common.cuh"

namespace lm {

constexpr int DEPTH = 32;   // of k in a tile
constexpr int STAGES = 2;

// A block's tile of C, and a warp's within it.  A warp is 4 x 8 lanes.
template <int M_, int N_, int WARP_M_, int WARP_N_>
struct Tile {
    static constexpr int M = M_, N = N_, WARP_M = WARP_M_, WARP_N = WARP_N_;
    static constexpr int THREADS = M / WARP_M * (N / WARP_N) * WARP;
    static constexpr int LANE_M = WARP_M / 4, LANE_N = WARP_N / 8;  // elements of C a thread holds
    static constexpr int A_FLOATS = M * DEPTH, B_FLOATS = N * DEPTH;
    static constexpr int SHARED_BYTES = STAGES * (A_FLOATS + B_FLOATS) * 4;
    // Blocks that share a multiprocessor, which bounds the registers of a thread: 128 where two tiles of 128 x 128 fit
    // into shared memory (on sm_75 they do not), 170 for the smaller tiles.
    static constexpr int BLOCKS = THREADS < 256 ? 384 / THREADS : LM_ARCH == 750 ? 1 : 2;
};

LM_FN int in_rows(int row, int k) { return row * DEPTH + ((k / 4 ^ (row & 7)) * 4 + k % 4); }

template <int WIDTH>
LM_FN int in_columns(int k, int column) {
    return k * WIDTH + ((column / 4 ^ (k & 3) << 1) * 4 + column % 4);
}

// ---- loading -----------------------------------------------------------------------------------------------------------

// Rows that look at an image [..][height][width][pitch] through taps: row i, tap (r, s), channel c is the element
// (h + r step_h, w + s step_w, c) with (offset, h, w) from a table, zero outside the image.  k = (r across + s) channels + c.
struct Taps {
    const float* image;
    int height, width, pitch;
    int step_h, step_w;
    int depth;  // of k
    Divider channels, across;
};

constexpr int OUTSIDE = -(1 << 30);  // as h: a row that is not there

// Starts the copy of rows [ROWS][DEPTH] from k0 on.
template <int ROWS, int THREADS, int V>
LM_FN void load_taps(float* tile, const int4* table, const Taps& taps, int k0) {
    constexpr int CHUNKS = DEPTH / V, AT_ONCE = THREADS / CHUNKS;
    const int k = static_cast<int>(threadIdx.x) % CHUNKS * V;
    const int tap = divide(k0 + k, taps.channels), c = k0 + k - tap * static_cast<int>(taps.channels.divisor);
    const int r = divide(tap, taps.across), s = tap - r * static_cast<int>(taps.across.divisor);
    const int down = r * taps.step_h, right = s * taps.step_w;
    const int shift = (down * taps.width + right) * taps.pitch + c;
    const bool deep = k0 + k < taps.depth;
#pragma unroll 4
    for (int row = static_cast<int>(threadIdx.x) / CHUNKS; row < ROWS; row += AT_ONCE) {
        const int4 at = table[row];
        const bool inside = deep && static_cast<unsigned>(at.y + down) < static_cast<unsigned>(taps.height) &&
                            static_cast<unsigned>(at.z + right) < static_cast<unsigned>(taps.width);
        async_copy<4 * V>(tile + in_rows(row, k), taps.image + (inside ? at.x + shift : 0), inside);
    }
}

// Starts the copy of rows first.. of a matrix [count][depth], from k0 on.
template <int ROWS, int THREADS, int V>
LM_FN void load_rows(float* tile, const float* matrix, int first, int count, int depth, int k0) {
    constexpr int CHUNKS = DEPTH / V, AT_ONCE = THREADS / CHUNKS;
    const int k = static_cast<int>(threadIdx.x) % CHUNKS * V;
#pragma unroll 4
    for (int row = static_cast<int>(threadIdx.x) / CHUNKS; row < ROWS; row += AT_ONCE) {
        const bool inside = first + row < count && k0 + k < depth;
        async_copy<4 * V>(tile + in_rows(row, k), matrix + (inside ? (first + row) * depth + k0 + k : 0), inside);
    }
}

// Starts the copy of a tile of columns: element (k, column) is source(k) + column, or zero where that says no.
// `source(k, inside)` gives the offset of column 0 in `matrix`.
template <int WIDTH, int THREADS, int V, class Source>
LM_FN void load_columns(float* tile, const float* matrix, bool column_inside, int k0, Source source) {
    constexpr int CHUNKS = WIDTH / V, AT_ONCE = THREADS / CHUNKS;
    static_assert(THREADS % CHUNKS == 0, "a thread keeps its column");
    const int column = static_cast<int>(threadIdx.x) % CHUNKS * V;
#pragma unroll 1
    for (int k = static_cast<int>(threadIdx.x) / CHUNKS; k < DEPTH; k += AT_ONCE) {
        bool inside = column_inside;
        const int offset = source(k0 + k, inside);
        async_copy<4 * V>(tile + in_columns<WIDTH>(k, column), matrix + (inside ? offset : 0), inside);
    }
}

// The column that this thread loads: V elements from here.
template <int WIDTH, int V>
LM_FN int my_column() {
    return static_cast<int>(threadIdx.x) % (WIDTH / V) * V;
}

// ---- multiplying ---------------------------------------------------------------------------------------------------------

LM_FN int warp_of_block() { return static_cast<int>(threadIdx.x) / WARP; }
LM_FN int lane_of_warp() { return static_cast<int>(threadIdx.x) % WARP; }

// Where element (i, j) of a thread lies in its block's tile of C.  Along a tile of rows the lanes take turns; along a tile
// of columns a lane holds runs of four.
template <class T, bool ROWS>
LM_FN int m_of(int i) {
    const int first = warp_of_block() / (T::N / T::WARP_N) * T::WARP_M, lane = lane_of_warp() / 8;
    return ROWS ? first + 4 * i + lane : first + i / 4 * 16 + lane * 4 + i % 4;
}

template <class T, bool ROWS>
LM_FN int n_of(int j) {
    const int first = warp_of_block() % (T::N / T::WARP_N) * T::WARP_N, lane = lane_of_warp() % 8;
    return ROWS ? first + 8 * j + lane : first + j / 4 * 32 + lane * 4 + j % 4;
}

// Four k's, from 4 chunk on, of row `lane + LANES i` in a warp's tile of rows.
template <int LANES>
LM_FN void fragment_of_row(float (&four)[4], const float* warp_tile, int lane, int chunk, int i) {
    static_assert(LANES == 4 || LANES == 8, "the swizzle of row `lane + LANES i` is written out for these");
    const int swizzled = LANES == 8 ? chunk ^ lane : chunk ^ lane ^ (i & 1) * 4;
    load<4>(four, warp_tile + (lane + LANES * i) * DEPTH + swizzled * 4);
}

// One step of four k's: sum[i][j] += a[i][k] b[j][k], k rising.  The tiles begin at the warp's first row or column.
template <class T, bool A_ROWS, bool B_ROWS>
LM_FN void multiply_four(const float* a_tile, const float* b_tile, int chunk, float (&sum)[T::LANE_M][T::LANE_N]) {
    constexpr int M = T::LANE_M, N = T::LANE_N;
    const int lane_m = lane_of_warp() / 8, lane_n = lane_of_warp() % 8;
    float a[M][4];
    if constexpr (A_ROWS) {
#pragma unroll
        for (int i = 0; i < M; ++i) fragment_of_row<4>(a[i], a_tile, lane_m, chunk, i);
    }
    if constexpr (A_ROWS && B_ROWS) {
#pragma unroll
        for (int j = 0; j < N; ++j) {
            float b[4];
            fragment_of_row<8>(b, b_tile, lane_n, chunk, j);
#pragma unroll
            for (int k = 0; k < 4; ++k)
#pragma unroll
                for (int i = 0; i < M; ++i) sum[i][j] = fmaf(a[i][k], b[k], sum[i][j]);
        }
    } else {
        static_assert(!B_ROWS, "no product needs A in columns and B in rows");
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            float a_k[M], b[N];
#pragma unroll
            for (int i = 0; i < M; i += 4) {
                float four[4];
                if constexpr (!A_ROWS) load<4>(four, a_tile + (4 * chunk + k) * T::M + ((i + lane_m) ^ k << 1) * 4);
#pragma unroll
                for (int e = 0; e < 4; ++e) a_k[i + e] = A_ROWS ? a[i + e][k] : four[e];
            }
#pragma unroll
            for (int j = 0; j < N; j += 4) {
                float four[4];
                load<4>(four, b_tile + (4 * chunk + k) * T::N + ((2 * j + lane_n) ^ k << 1) * 4);
#pragma unroll
                for (int e = 0; e < 4; ++e) b[j + e] = four[e];
            }
#pragma unroll
            for (int i = 0; i < M; ++i)
#pragma unroll
                for (int j = 0; j < N; ++j) sum[i][j] = fmaf(a_k[i], b[j], sum[i][j]);
        }
    }
}

// The whole product over k in [0, depth): `load_stage(a_tile, b_tile, k0)` starts the copies of one stage.
template <class T, bool A_ROWS, bool B_ROWS, class LoadStage>
LM_FN void multiply(float* shared, int depth, LoadStage load_stage, float (&sum)[T::LANE_M][T::LANE_N]) {
    constexpr int STAGE = T::A_FLOATS + T::B_FLOATS;
    const int steps = (depth + DEPTH - 1) / DEPTH;
    const int warp = warp_of_block(), warps_n = T::N / T::WARP_N;
    const int a_first = warp / warps_n * T::WARP_M * (A_ROWS ? DEPTH : 1);
    const int b_first = T::A_FLOATS + warp % warps_n * T::WARP_N * (B_ROWS ? DEPTH : 1);
    if (steps > 0) load_stage(shared, shared + T::A_FLOATS, 0);
    async_commit();
    for (int step = 0; step < steps; ++step) {
        async_wait<0>();
        block_sync();  // the stage is complete, and nobody reads the other one any more
        if (step + 1 < steps) {
            float* next = shared + (step + 1) % STAGES * STAGE;
            load_stage(next, next + T::A_FLOATS, (step + 1) * DEPTH);
        }
        async_commit();
        const float* stage = shared + step % STAGES * STAGE;
#pragma unroll 1
        for (int chunk = 0; chunk < DEPTH / 4; ++chunk)
            multiply_four<T, A_ROWS, B_ROWS>(stage + a_first, stage + b_first, chunk, sum);
    }
}

}  // namespace lm
