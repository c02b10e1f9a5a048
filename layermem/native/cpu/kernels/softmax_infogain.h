// InfogainLoss, on the softmax of its scores.
#pragma once
#include "cpu/kernels/launch.h"
#include "cpu/kernels/loss_partials.h"
#include "cpu/microkernels/softmax_infogain.h"

namespace layermem::cpu {

int64_t infogain_loss_workspace_bytes(const Axis& axis);  // for both directions

// *loss = -sum of matrix[label][c] ln max(p[c], 1e-20), by the divisor
// slices of a batch: loss_partials.h; inner = 1
int64_t infogain_loss_carry_bytes(const Axis& axis);
Launch infogain_loss_forward(const Axis& axis, float* loss, const float* p, const float* label, const float* matrix,
                             const std::optional<int64_t>& ignore_label, double divisor, OrNull<void> workspace,
                             int64_t first = 0, int64_t of = 0, void* carry = nullptr);

// dx (+)= (p[c] sum of matrix[label] - matrix[label][c]) *dloss / divisor; 0 where the label is ignored.  dx over x
Launch infogain_loss_backward(const Axis& axis, float* dx, const float* p, const float* label, const float* matrix,
                              const float* dloss, const std::optional<int64_t>& ignore_label, double divisor,
                              bool accumulate, void* workspace, const float* counted = nullptr, int64_t of = 0);

}  // namespace layermem::cpu
