// The tile of a DotBlock and the strip of a RankUpdateBlock.  Neither needs packed operands.
#pragma once
#include "cpu/isa/simd_math.h"
#include "cpu/microkernels/gemm.h"

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

// Rows [m, m + kRows) times columns [n, n + kColumns).  Both operands are contiguous along the reduction, so lanes run
// along it and are added up at the end.  Each step fetches a line of kFetched columns of args.next, from `column` on.
template <int kRows, int kColumns, int kFetched>
void dot_tile(const DotBlock& args, int64_t m, int64_t n, int64_t column) {
    V sum[kRows][kColumns];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
        for (int j = 0; j < kColumns; ++j) sum[i][j] = zero();
    const float* a[kRows];
    const float* b[kColumns];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) a[i] = args.a + (m + i) * args.a_pitch;
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) b[j] = args.b + (n + j) * args.b_pitch;
    int64_t k = 0;
    for (; k + kLanes <= args.length; k += kLanes) {
#pragma GCC unroll 3
        for (int j = 0; j < kFetched; ++j) __builtin_prefetch(args.next + (column + j) * args.b_pitch + k, 0, 2);
        V x[kRows];
#pragma GCC unroll 8
        for (int i = 0; i < kRows; ++i) x[i] = load(a[i] + k);
#pragma GCC unroll 8
        for (int j = 0; j < kColumns; ++j) {
            const V w = load(b[j] + k);
#pragma GCC unroll 8
            for (int i = 0; i < kRows; ++i) sum[i][j] = fma(x[i], w, sum[i][j]);
        }
    }
    if (const int rest = static_cast<int>(args.length - k)) {
#pragma GCC unroll 8
        for (int j = 0; j < kColumns; ++j) {
            const V w = load(b[j] + k, rest);
#pragma GCC unroll 8
            for (int i = 0; i < kRows; ++i) sum[i][j] = fma(load(a[i] + k, rest), w, sum[i][j]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
        for (int j = 0; j < kColumns; ++j) {
            float* out = args.out + (m + i) * args.pitch + n + j;
            const float first = args.init == Init::out ? *out : args.init == Init::bias ? args.bias[n + j] : 0.0f;
            const float all = first + reduce_add(sum[i][j]);
            *out = args.relu && all < 0 ? 0 : all;
        }
}

// All columns of kRows rows, which are number `group` of such rows.  Each group fetches kFetched columns of every tile.
template <int kRows, int kColumns, int kFetched>
void dot_columns(const DotBlock& args, int64_t m, int64_t group) {
    int64_t n = 0;
    for (; n + kColumns <= args.columns; n += kColumns)
        if (kFetched > 0 && (group + 1) * kFetched <= kColumns)
            dot_tile<kRows, kColumns, kFetched>(args, m, n, n + group * kFetched);
        else
            dot_tile<kRows, kColumns, 0>(args, m, n, 0);
    for (; n < args.columns; ++n) dot_tile<kRows, 1, 0>(args, m, n, 0);
}

template <int kRows, int kColumns, int kFetched>
void dot_groups(const DotBlock& args) {
    int64_t m = 0;
    for (; m + kRows <= args.rows; m += kRows) dot_columns<kRows, kColumns, kFetched>(args, m, m / kRows);
    for (; m < args.rows; ++m) dot_columns<1, kColumns, 0>(args, m, 0);
}

// 4x6 + 4 + 1 = 29 of 32 registers, 3x4 + 3 + 1 = 16 of 16.  One group of rows alone waits for memory in any case.
void dot(const DotBlock& args) {
    constexpr int kRows = kRegisters == 32 ? 4 : 3, kColumns = kRegisters == 32 ? 6 : 4;
    const int64_t groups = args.rows / kRows;
    if (!args.next || groups < 2)
        dot_groups<kRows, kColumns, 0>(args);
    else if (groups == 2)
        dot_groups<kRows, kColumns, kColumns / 2>(args);
    else if (groups < kColumns)
        dot_groups<kRows, kColumns, 2>(args);
    else
        dot_groups<kRows, kColumns, 1>(args);
}

// Register i of a pair of which n < 2 kLanes floats are in use, or all.
inline V load_part(const float* p, int i, FullVector) { return load(p + i * kLanes); }
inline V load_part(const float* p, int i, int n) {
    const int left = n - i * kLanes;
    return left >= kLanes ? load(p + i * kLanes) : left > 0 ? load(p + i * kLanes, left) : zero();
}
inline void store_part(float* p, V v, int i, FullVector) { store(p + i * kLanes, v); }
inline void store_part(float* p, V v, int i, int n) {
    const int left = n - i * kLanes;
    if (left > 0) store_up_to(p + i * kLanes, v, left);
}

// A strip of a RankUpdateBlock: kDepth rows of w by two registers stay in place while all rows of d go by.
template <int kDepth, class N>
LAYERMEM_INLINE void rank_update_strip(const RankUpdateBlock& args, int64_t j, int64_t c, bool add, N n) {
    constexpr int kVectors = 2;
    V w[kDepth][kVectors];
#pragma GCC unroll 8
    for (int k = 0; k < kDepth; ++k)
#pragma GCC unroll 2
        for (int i = 0; i < kVectors; ++i) w[k][i] = load_part(args.w + (j + k) * args.w_pitch + c, i, n);
    if (j + 2 * kDepth <= args.depth)  // the same columns of the next rows, which lie too far apart to be foreseen
#pragma GCC unroll 8
        for (int k = 0; k < kDepth; ++k)
            for (int i = 0; i < kVectors * kLanes; i += kLineFloats)
                __builtin_prefetch(args.w + (j + kDepth + k) * args.w_pitch + c + i, 0, 2);
    for (int64_t m = 0; m < args.rows; ++m) {
        float* out = args.out + m * args.pitch + c;
        const float* d = args.d + m * args.d_pitch + j;
        V sum[kVectors];
#pragma GCC unroll 2
        for (int i = 0; i < kVectors; ++i) sum[i] = add ? load_part(out, i, n) : zero();
#pragma GCC unroll 8
        for (int k = 0; k < kDepth; ++k) {
            const V x = broadcast(d[k]);
#pragma GCC unroll 2
            for (int i = 0; i < kVectors; ++i) sum[i] = fma(x, w[k][i], sum[i]);
        }
#pragma GCC unroll 2
        for (int i = 0; i < kVectors; ++i) store_part(out, sum[i], i, n);
    }
}

// kDepth rows of w from j on, in strips of two registers.
template <int kDepth>
void rank_update_rows(const RankUpdateBlock& args, int64_t j, bool add) {
    int64_t c = 0;
    for (; c + 2 * kLanes <= args.columns; c += 2 * kLanes) rank_update_strip<kDepth>(args, j, c, add, FullVector{});
    if (c < args.columns) rank_update_strip<kDepth>(args, j, c, add, static_cast<int>(args.columns - c));
}

// Each strip reads and writes `out` once, so that kStep rows of w are taken together.
void rank_update(const RankUpdateBlock& args) {
    constexpr int kStep = kRegisters == 32 ? 8 : 4;
    int64_t j = 0;
    for (; j + kStep <= args.depth; j += kStep) rank_update_rows<kStep>(args, j, j > 0 || args.init == Init::out);
    for (; j < args.depth; ++j) rank_update_rows<1>(args, j, j > 0 || args.init == Init::out);
}

}  // namespace
}  // namespace layermem::cpu::LAYERMEM_ISA
