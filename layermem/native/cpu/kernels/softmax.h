// Softmax along one axis, SoftmaxWithLoss and Accuracy.  y may be x; dx may be any input.
#pragma once
#include "cpu/kernels/launch.h"
#include "cpu/kernels/loss_partials.h"
#include "cpu/microkernels/softmax.h"

namespace layermem::cpu {

Launch softmax_forward(const Axis& axis, float* y, const float* x);
Launch softmax_backward(const Axis& axis, float* dx, const float* y, const float* dy, bool accumulate);

// *loss = -(sum of ln softmax(x) at the labels) / divisor, and the softmax where y is not null
// outer: of the slice of a batch that the axis has; such slices carry what loss_partials.h says
int64_t softmax_loss_workspace_bytes(const Axis& axis);
int64_t softmax_loss_carry_bytes(const Axis& axis);  // of the whole batch
Launch softmax_loss_forward(const Axis& axis, const RowSlice& outer, float* loss, float* y, const float* x,
                            const Labels& labels, void* workspace, void* carry);
Launch softmax_loss_backward(const Axis& axis, float* dx, const float* x, const float* dloss, const Labels& labels,
                             bool accumulate, void* workspace, const CountedLabels& counted);

// *y = the fraction of labels among the top_k scores, and by_class [size] that of each class where it is not null
int64_t accuracy_workspace_bytes(const Axis& axis, bool by_class);
Launch accuracy(const Axis& axis, float* y, float* by_class, const float* x, const Labels& labels, int64_t top_k,
                void* workspace);

}  // namespace layermem::cpu
