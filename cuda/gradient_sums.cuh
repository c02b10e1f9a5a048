// The sums over rows that backward of a BatchNorm needs of a channel, in units of 128 rows.  Each is added in one
// order, by the epilogue of conv_dgrad from its tile in registers (conv_sums.cuh), or by gradient_sums from memory
// (batch_norm.cuh).
//
//   terms    of an element: dy, and dy y, y = (x - mean) inv_std; if a ReLU follows, with the dy that it lets through
//   unit u   existing rows of 128 u .. 128 u + 127 of [rows][C]; the sum of four groups, (0, 1) and (2, 3) first; never
//            -0
//   group    32 rows, added up as in moments.cuh; absent rows are zeros, of either sign
//   parts    [units][2][C] float: sums of dy, of dy y
#pragma once
#include "moments.cuh"

namespace lm {

constexpr int GRADIENT_TERMS = 2;

// The Scale and ReLU after the normalization in the same pass; none if factor is null.
struct AffineRelu {
    const float* factor;  // [C]
    const float* bias;    // [C]
    int relu;
    float largest_zero;  // of y where it is stored: what is above it is positive there (pointwise.cuh)
};

// The numbers of V channels that determine the terms of their elements.
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

    // Returns the gradient of the normalized value at column v, and that value in y.
    LM_MEMBER float gradient(int v, float dy, float x, float& y) const {
        y = (x - mean[v]) * inv_std[v];
        return relu && !(y * factor[v] + bias[v] > largest_zero) ? 0.0f : dy;
    }
};

// Returns the sum of a unit whose groups are group(0) .. group(3).
template <class Group>
LM_FN float sum_groups(Group group) {
    return ((group(0) + group(1)) + (group(2) + group(3))) + 0.0f;
}

}  // namespace lm
