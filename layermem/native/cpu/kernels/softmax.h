// Softmax along one axis, SoftmaxWithLoss and Accuracy.  y may be x; dx may be any input.
#pragma once
#include "cpu/kernels/launch.h"
#include "cpu/kernels/loss_partials.h"
#include "cpu/microkernels/softmax.h"

namespace layermem::cpu {

Launch softmax_forward(const Axis& axis, float* y, const float* x);
Launch softmax_backward(const Axis& axis, float* dx, const float* y, const float* dy, bool accumulate);

// *loss = -(sum of ln softmax(x) at the labels) / divisor, and the softmax where y is not null
// first, of: of outer indices, where the axis has a slice of a batch; such slices carry what loss_partials.h says
int64_t softmax_loss_workspace_bytes(const Axis& axis);
int64_t softmax_loss_carry_bytes(const Axis& axis);  // of the whole batch
Launch softmax_loss_forward(const Axis& axis, float* loss, OrNull<float> y, const float* x, const float* label,
                            const std::optional<int64_t>& ignore_label, double divisor, OrNull<void> workspace,
                            int64_t first = 0, int64_t of = 0, void* carry = nullptr);
Launch softmax_loss_backward(const Axis& axis, float* dx, const float* x, const float* label, const float* dloss,
                             const std::optional<int64_t>& ignore_label, double divisor, bool accumulate,
                             OrNull<void> workspace, const float* counted = nullptr, int64_t of = 0);

// *y = the fraction of labels among the top_k scores, and by_class [size] that of each class where it is not null
int64_t accuracy_workspace_bytes(const Axis& axis, bool by_class);
Launch accuracy(const Axis& axis, float* y, OrNull<float> by_class, const float* x, const float* label,
                const std::optional<int64_t>& ignore_label, int64_t top_k, void* workspace);

}  // namespace layermem::cpu
