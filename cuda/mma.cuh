// The product on tensor cores, from the same fp32 tiles, accumulated in fp32.
//
//   TF32      operands rounded to nearest, 10 bits of mantissa
//   FP32X3    each operand as big + small, both tf32: small big + big small + big big, about fp32's precision
//   BF16      operands rounded to bfloat16, 7 bits of mantissa
//
// A fragment is always read for eight k's, in the layout of mma m16n8k8: lane 4 g + t has k = t and t + 4.  BF16 takes
// two such fragments as one of m16n8k16: a lane's pair is then (t, t + 4) instead of neighbours, for both operands
// alike, and a sum over k does not mind.
#pragma once
#include "implicit_gemm.cuh"

namespace lm {

enum class Precision { TF32, FP32X3, BF16 };

// Four warps each; 64 x 64 a warp keeps the tensor cores busiest: four or five other instructions for each product.
using T128x128 = Tile<128, 128, 64, 64, 2>;
using T128x64 = Tile<128, 64, 64, 32, 3>;
using T64x64 = Tile<64, 64, 32, 32, 4>;
using T128x32 = Tile<128, 32, 32, 32, 4>;

template <class T, bool A_ROWS, bool B_ROWS, Precision PRECISION>
struct Mma {
    static constexpr int STAGES = 3;
    static constexpr int BLOCKS_M = T::WARP_M / 16, BLOCKS_N = T::WARP_N / 8;  // of 16 x 8
    static constexpr int ROWS = 2 * BLOCKS_M, COLUMNS = 2 * BLOCKS_N, RUN = 2;
    static constexpr int LANES = 4;

    float sum[BLOCKS_M][BLOCKS_N][4] = {};

    LM_MEMBER int m_of(int i) const { return warp_m<T>() + 8 * i + lane_of_warp() / 4; }
    LM_MEMBER int n_of(int j) const { return warp_n<T>() + j / 2 * 8 + lane_of_warp() % 4 * 2 + j % 2; }
    LM_MEMBER float at(int i, int j) const { return sum[i / 2][j / 2][i % 2 * 2 + j % 2]; }
    LM_MEMBER void set(int i, int j, float value) { sum[i / 2][j / 2][i % 2 * 2 + j % 2] = value; }

    LM_MEMBER void add(const float* a_tile, const float* b_tile) {
        a_tile += warp_m<T>() * (A_ROWS ? DEPTH : 1);
        b_tile += warp_n<T>() * (B_ROWS ? DEPTH : 1);
#pragma unroll 1  // or fragments of the next step would want registers during this one
        for (int k = 0; k < DEPTH; k += PRECISION == Precision::BF16 ? 16 : 8) {
            if constexpr (PRECISION == Precision::BF16)
                add_sixteen(a_tile, b_tile, k);
            else
                add_eight(a_tile, b_tile, k);
        }
    }

  private:
    // Where a lane finds its elements of a tile of columns, (k + t, 8 block + g): the swizzle makes four offsets of it.
    template <int WIDTH>
    struct Lane {
        int offset[4];

        LM_MEMBER Lane() {
            const int g = lane_of_warp() / 4, t = lane_of_warp() % 4;
#pragma unroll
            for (int c = 0; c < 4; ++c) offset[c] = t * WIDTH + 8 * (c ^ t) + g;
        }
        LM_MEMBER unsigned operator()(const float* tile, int block, int k) const {
            return __float_as_uint(tile[offset[block & 3] + 8 * (block & ~3) + k * WIDTH]);
        }
    };

    // a0 (g, t)  a1 (g + 8, t)  a2 (g, t + 4)  a3 (g + 8, t + 4) of block i, for eight k's.
    LM_MEMBER void load_a(unsigned (&a)[4], const float* a_tile, int i, int k) {
        if constexpr (A_ROWS) {
            const int lane = lane_of_warp();
            load_matrix(a, a_tile + in_rows(16 * i + lane % 16, k + lane / 16 * 4));
        } else {
            const Lane<T::M> mine;
#pragma unroll
            for (int r = 0; r < 4; ++r) a[r] = mine(a_tile, 2 * i + r % 2, k + r / 2 * 4);
        }
    }

    // b0 (t, g)  b1 (t + 4, g) of blocks j and j + 1.
    LM_MEMBER void load_b(unsigned (&b)[2][2], const float* b_tile, int j, int k) {
        if constexpr (B_ROWS) {
            const int lane = lane_of_warp();
            unsigned both[4];
            load_matrix(both, b_tile + in_rows(8 * j + lane / 16 * 8 + lane % 8, k + lane / 8 % 2 * 4));
#pragma unroll
            for (int r = 0; r < 4; ++r) b[r / 2][r % 2] = both[r];
        } else {
            const Lane<T::N> mine;
#pragma unroll
            for (int r = 0; r < 4; ++r) b[r / 2][r % 2] = mine(b_tile, j + r / 2, k + r % 2 * 4);
        }
    }

    // x -> its tf32 bits, and what they leave of it.
    LM_MEMBER static unsigned big(unsigned x) { return tf32_round(__uint_as_float(x)); }
    LM_MEMBER static unsigned small(unsigned x, unsigned big) {
        return tf32_round(__uint_as_float(x) - __uint_as_float(big & 0xffffe000u));
    }

    LM_MEMBER void add_eight(const float* a_tile, const float* b_tile, int k) {
        unsigned b[BLOCKS_N][2], b_small[BLOCKS_N][2];
#pragma unroll
        for (int j = 0; j < BLOCKS_N; j += 2) load_b(two(b, j), b_tile, j, k);
#pragma unroll
        for (int j = 0; j < BLOCKS_N; ++j)
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const unsigned x = b[j][r];
                b[j][r] = big(x);
                if constexpr (PRECISION == Precision::FP32X3) b_small[j][r] = small(x, b[j][r]);
            }
#pragma unroll
        for (int i = 0; i < BLOCKS_M; ++i) {
            unsigned a[4], a_small[4];
            load_a(a, a_tile, i, k);
#pragma unroll
            for (int r = 0; r < 4; ++r) {
                const unsigned x = a[r];
                a[r] = big(x);
                if constexpr (PRECISION == Precision::FP32X3) a_small[r] = small(x, a[r]);
            }
#pragma unroll
            for (int j = 0; j < BLOCKS_N; ++j) {
                if constexpr (PRECISION == Precision::FP32X3) {
                    mma_tf32(sum[i][j], a_small, b[j]);
                    mma_tf32(sum[i][j], a, b_small[j]);
                }
                mma_tf32(sum[i][j], a, b[j]);
            }
        }
    }

    LM_MEMBER static unsigned pair(unsigned low, unsigned high) {
        return bf16_pack(__uint_as_float(low), __uint_as_float(high));
    }

    LM_MEMBER void add_sixteen(const float* a_tile, const float* b_tile, int k) {
        unsigned b[BLOCKS_N][2];
#pragma unroll
        for (int j = 0; j < BLOCKS_N; j += 2)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                unsigned eight[2][2];
                load_b(eight, b_tile, j, k + 8 * half);
#pragma unroll
                for (int block = 0; block < 2; ++block) b[j + block][half] = pair(eight[block][0], eight[block][1]);
            }
#pragma unroll
        for (int i = 0; i < BLOCKS_M; ++i) {
            unsigned a[4];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                unsigned eight[4];
                load_a(eight, a_tile, i, k + 8 * half);
                a[2 * half] = pair(eight[0], eight[2]);
                a[2 * half + 1] = pair(eight[1], eight[3]);
            }
#pragma unroll
            for (int j = 0; j < BLOCKS_N; ++j) mma_bf16(sum[i][j], a, b[j]);
        }
    }
};

}  // namespace lm
