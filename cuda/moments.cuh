// Mean and squared distances of a channel over rows, in units of 128 rows.  Each is computed in one order, by the
// epilogue of conv_fprop from its tile in registers (conv.cuh), or by batch_moments from memory (batch_norm.cuh).
//
//   unit u   existing rows of 128 u .. 128 u + 127 of [rows][C]; (mean, M2), M2 the sum of squared distances from the
//            mean; merged from the moments of four groups, (0, 1) and (2, 3) first
//   group    32 rows: their mean, then M2.  Row r is added to row r + 16, that to r + 8, + 4, + 2 and + 1; absent rows
//            are zeros
//   parts    [units][2][C] float: means and M2's
//   source   Chan, Golub, LeVeque (1979) for the merging
#pragma once
#include "common.cuh"

namespace lm {

constexpr int UNIT_ROWS = 128, GROUP_ROWS = 32, GROUPS = UNIT_ROWS / GROUP_ROWS;

struct Moments {
    float count, mean, m2;
};

LM_FN Moments merge(const Moments& a, const Moments& b) {
    if (b.count == 0.0f) return a;
    const float count = a.count + b.count, delta = b.mean - a.mean, share = b.count / count;
    return {count, a.mean + delta * share, a.m2 + b.m2 + delta * delta * a.count * share};
}

// Returns the moments of a unit whose groups are group(0) .. group(3).
template <class Group>
LM_FN Moments merge_groups(Group group) {
    return merge(merge(group(0), group(1)), merge(group(2), group(3)));
}

// Returns how many of `rows` rows are in the group or unit of SIZE rows from `first` on.
template <int SIZE>
LM_FN int rows_within(int first, int rows) {
    return max(0, min(SIZE, rows - first));
}

// Returns the sum of R neighbouring levels of the tree: of values that lie 32 / R rows apart.
template <int R>
LM_FN float sum_apart(float (&values)[R]) {
#pragma unroll
    for (int half = R / 2; half > 0; half /= 2)
#pragma unroll
        for (int i = 0; i < half; ++i) values[i] += values[i + half];
    return values[0];
}

// Returns the sum of the levels below: over lanes whose values lie one row apart; EACH lanes share a row.
template <int EACH>
LM_FN float sum_lanes(float value) {
#pragma unroll
    for (int distance = WARP / 2; distance >= EACH; distance /= 2) value += shuffle_xor(value, distance);
    return value;
}

// Sums N values over the lanes that share them: each lane gets N EACH / WARP sums, in front, and the function returns
// the number of the first of them.
template <int EACH, int N>
LM_FN int share_lanes(float (&values)[N]) {
    static_assert(N * EACH % WARP == 0, "no lane gets less than a sum");
    const int lane = static_cast<int>(threadIdx.x) % WARP;
    int first = 0, left = N;
#pragma unroll
    for (int distance = WARP / 2; distance >= EACH; distance /= 2) {
        const bool upper = (lane & distance) != 0;
        left /= 2;
#pragma unroll
        for (int i = 0; i < left; ++i) {
            const float other = shuffle_xor(upper ? values[i] : values[i + left], distance);
            values[i] = (upper ? values[i + left] : values[i]) + other;
        }
        if (upper) first += left;
    }
    return first;
}

}  // namespace lm
