// The matrix engine: C[M,N] = A[M,K] B[K,N], one tile of C a block, with operands gathered on their way into shared
// memory.
//
//   tile in shared memory     rows     [rows][32 of k]  a row runs along k, as memory does; 128 bytes
//                             columns  [32 of k][width] a row runs along m or n, as memory does
//   order                     k rises, always in the same steps: no tile and no place in it changes a bit
//   pipeline                  a ring of stages: while one is multiplied, the next are copied; one barrier a stage
//   product                   what a warp does with a stage: ffma.cuh (fp32), mma.cuh (tensor cores)
//
// 16-byte chunk j of row r lies at chunk j ^ (r & 7) in a tile of rows and at j ^ ((r & 3) << 1) in one of columns: the
// lanes of a warp then meet different banks, whichever product reads.
#pragma once
#include "common.cuh"

namespace lm {

constexpr int DEPTH = 32;  // of k in a tile

// A block's tile of C, a warp's within it, and how many blocks share a multiprocessor, which bounds their registers.
template <int M_, int N_, int WARP_M_, int WARP_N_, int BLOCKS_>
struct Tile {
    static constexpr int M = M_, N = N_, WARP_M = WARP_M_, WARP_N = WARP_N_, BLOCKS = BLOCKS_;
    static constexpr int WARPS_N = N / WARP_N, THREADS = M / WARP_M * WARPS_N * WARP;
    static constexpr int A_FLOATS = M * DEPTH, STAGE_FLOATS = (M + N) * DEPTH;
};

LM_FN int in_rows(int row, int k) { return row * DEPTH + ((k / 4 ^ (row & 7)) * 4 + k % 4); }

template <int WIDTH>
LM_FN int in_columns(int k, int column) {
    return k * WIDTH + ((column / 4 ^ (k & 3) << 1) * 4 + column % 4);
}

LM_FN int lane_of_warp() { return static_cast<int>(threadIdx.x) % WARP; }

// Where the warp's part of the block's tile begins.
template <class T>
LM_FN int warp_m() {
    return static_cast<int>(threadIdx.x) / WARP / T::WARPS_N * T::WARP_M;
}

template <class T>
LM_FN int warp_n() {
    return static_cast<int>(threadIdx.x) / WARP % T::WARPS_N * T::WARP_N;
}

// ---- loading --------------------------------------------------------------------------------------------------------

// Rows that look at an image [..][height][width][pitch] through taps: row i, tap (r, s), channel c is the element
// (h + r step_h, w + s step_w, c) with (offset, h, w) from a table, zero outside the image.
// k = (r across + s) channels + c.
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
#pragma unroll 2
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
#pragma unroll 2
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

// ---- the whole product ----------------------------------------------------------------------------------------------
//
// A product holds a thread's share of the block's tile of C:
//      ROWS, COLUMNS         how many elements, RUN of them side by side; LANES of a warp share a row
//      m_of(i), n_of(j)      where they lie in the tile         at(i, j), set(i, j, value)     their values
//      add(a_tile, b_tile)   += the product of a stage          STAGES       of its ring

// Over k in [0, depth): `load_stage(a_tile, b_tile, k0)` starts the copies of one stage.
template <class T, class Product, class LoadStage>
LM_FN void multiply(float* shared, int depth, LoadStage load_stage, Product& product) {
    constexpr int STAGES = Product::STAGES;
    const int steps = (depth + DEPTH - 1) / DEPTH;
    const auto start = [&](int step) {
        if (step < steps) {
            float* stage = shared + step % STAGES * T::STAGE_FLOATS;
            load_stage(stage, stage + T::A_FLOATS, step * DEPTH);
        }
        async_commit();  // an empty group keeps the count
    };
    for (int step = 0; step < STAGES - 1; ++step) start(step);
    for (int step = 0; step < steps; ++step) {
        async_wait<STAGES - 2>();
        block_sync();  // the stage is complete, and no thread reads the one before it any more
        start(step + STAGES - 1);
        const float* stage = shared + step % STAGES * T::STAGE_FLOATS;
        product.add(stage, stage + T::A_FLOATS);
    }
}

}  // namespace lm
