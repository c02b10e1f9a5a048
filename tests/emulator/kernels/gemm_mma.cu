// gemm_tf32, gemm_bf16: c = a b^T on tensor cores, through a ring of asynchronously copied tiles.
//   c [m,n] float written     a [m,k], b [n,k] read: float for tf32, bfloat16 for bf16
//   launch   grid (ceil(n/64), ceil(m/64)), block 128 (2x2 warps of 32x32), shared STAGES * 16 KiB
//   assumes  rows of a and b are a multiple of 16 bytes, and aligned to it
//   tiles    64 rows of 128 bytes; 16-byte chunk j of row r lies at chunk j ^ (r & 7), so that the eight rows of a
//            load_matrix meet eight different groups of banks
#include "primitives.cuh"

struct GemmArgs {
    float* c;
    const unsigned char* a;
    const unsigned char* b;
    int m, n, k;
};

constexpr int STAGES = 3, ROWS = 64, ROW_BYTES = 128, CHUNKS = 8, TILE_BYTES = ROWS * ROW_BYTES, THREADS = 128;

static __device__ __forceinline__ unsigned char* chunk_of(unsigned char* tile, int row, int chunk) {
    return tile + row * ROW_BYTES + ((chunk ^ (row & 7)) << 4);
}

// Starts the copy of 64 rows from `first_row`, 128 bytes each from byte `start`; zeros beyond the matrix.
static __device__ __forceinline__ void load_tile(unsigned char* tile, const unsigned char* matrix, int rows,
                                                 int row_bytes, int first_row, int start) {
    for (int i = threadIdx.x; i < ROWS * CHUNKS; i += THREADS) {
        const int row = i / CHUNKS, chunk = i % CHUNKS, at = start + 16 * chunk;
        const bool inside = first_row + row < rows && at < row_bytes;
        lm::async_copy<16>(chunk_of(tile, row, chunk),
                           matrix + (first_row + row) * static_cast<long long>(row_bytes) + at, inside);
    }
}

template <bool BF16>
static __device__ __forceinline__ void gemm(const GemmArgs& p) {
    LM_DYN_SHARED(unsigned char, tiles);
    const int row_bytes = p.k * (BF16 ? 2 : 4), steps = (row_bytes + ROW_BYTES - 1) / ROW_BYTES;
    const int m0 = blockIdx.y * ROWS, n0 = blockIdx.x * ROWS;
    const auto load_stage = [&](int step) {
        if (step < steps) {
            unsigned char* stage = tiles + step % STAGES * 2 * TILE_BYTES;
            load_tile(stage, p.a, p.m, row_bytes, m0, step * ROW_BYTES);
            load_tile(stage + TILE_BYTES, p.b, p.n, row_bytes, n0, step * ROW_BYTES);
        }
        lm::async_commit();  // an empty group keeps the count
    };
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_m = warp / 2 * 32, warp_n = warp % 2 * 32;
    const int matrix = lane / 8, row = lane % 8;
    float sum[2][4][4] = {};

    for (int step = 0; step < STAGES - 1; ++step) load_stage(step);
    for (int step = 0; step < steps; ++step) {
        lm::async_wait<STAGES - 2>();
        lm::block_sync();
        load_stage(step + STAGES - 1);
        unsigned char* a_tile = tiles + step % STAGES * 2 * TILE_BYTES;
        unsigned char* b_tile = a_tile + TILE_BYTES;
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; chunk += 2) {
            unsigned a[2][4], b[4][2];
#pragma unroll
            for (int i = 0; i < 2; ++i)
                lm::load_matrix(a[i], chunk_of(a_tile, warp_m + 16 * i + row + matrix % 2 * 8, chunk + matrix / 2));
#pragma unroll
            for (int j = 0; j < 4; ++j)
                lm::load_matrix(b[j], chunk_of(b_tile, warp_n + 8 * j + row, chunk + matrix % 2));
            if (!BF16) {
#pragma unroll
                for (auto& fragment : a)
#pragma unroll
                    for (unsigned& x : fragment) x = lm::tf32_round(__uint_as_float(x));
#pragma unroll
                for (auto& fragment : b)
#pragma unroll
                    for (unsigned& x : fragment) x = lm::tf32_round(__uint_as_float(x));
            }
#pragma unroll
            for (int i = 0; i < 2; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    if (BF16)
                        lm::mma_bf16(sum[i][j], a[i], b[j]);
                    else
                        lm::mma_tf32(sum[i][j], a[i], b[j]);
        }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int y = m0 + warp_m + 16 * i + lane / 4 + e / 2 * 8,
                          x = n0 + warp_n + 8 * j + lane % 4 * 2 + e % 2;
                if (y < p.m && x < p.n) p.c[y * p.n + x] = sum[i][j][e];
            }
}

LM_KERNEL(gemm_tf32, GemmArgs, p, THREADS) { gemm<false>(p); }
LM_KERNEL(gemm_bf16, GemmArgs, p, THREADS) { gemm<true>(p); }
