// The sums that backward of a BatchNorm needs, of a channel over rows, in units of 128 rows, each added up in one order,
// whatever adds: the epilogue of conv_dgrad, from its tile in registers (conv_sums.cuh), or gradient_sums, from memory
// (batch_norm.cuh).
//
//   terms    of an element: dy, and dy y, y = (x - mean) inv_std; where a ReLU follows, of the dy that it lets through
//   unit u   rows 128 u .. 128 u + 127 of [rows][C], as far as they are there; the sum of four groups, (0, 1) and (2, 3)
//            first; never -0
//   group    32 rows, added up as in moments.cuh; rows that are not there are zeros, of either sign
//   parts    [units][2][C] float: sums of dy, of dy y
#pragma once
#include "moments.cuh"

namespace lm {

constexpr int GRADIENT_TERMS = 2;

// What follows the normalization in the same pass; nothing where factor is null.
struct AffineRelu {
    const float* factor;  // [C]
    const float* bias;    // [C]
    int relu;
    float largest_zero;  // of y where it is stored: what is above it is positive there (pointwise.cuh)
};

// The numbers of V channels from which the terms of their elements come.
template <int V>
struct TermsOfColumns {
    float mean[V] = {}, inv_std[V] = {}, factor[V] = {}, bias[V] = {};
    int relu;
    float largest_zero;

    LM_MEMBER TermsOfColumns(const float* means, const float* inv_stds, const AffineRelu& epilogue, int channel = 0,
                             bool inside = true)
        : relu(epilogue.relu), largest_zero(epilogue.largest_zero) {
        if (!inside) return;
        load<V>(mean, means + channel);
        load<V>(inv_std, inv_stds + channel);
        if (!relu) return;
        load<V>(factor, epilogue.factor + channel);
        load<V>(bias, epilogue.bias + channel);
    }

    // The gradient of what is normalized at column v, and y there.
    LM_MEMBER float gradient(int v, float dy, float x, float& y) const {
        y = (x - mean[v]) * inv_std[v];
        return relu && !(y * factor[v] + bias[v] > largest_zero) ? 0.0f : dy;
    }
};

// The sum of a unit whose groups are group(0) .. group(3).
template <class Group>
LM_FN float sum_groups(Group group) {
    return ((group(0) + group(1)) + (group(2) + group(3))) + 0.0f;
}

}  // namespace lm
