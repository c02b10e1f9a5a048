// InfogainLoss, on the softmax of its scores.
#pragma once
#include "cpu/kernels/launch.h"
#include "cpu/kernels/loss_partials.h"
#include "cpu/microkernels/infogain.h"

namespace layermem::cpu {

int64_t infogain_loss_workspace_bytes(const Axis& axis);  // of both

// *loss = -sum of matrix[label][c] ln max(p[c], 1e-20), by the divisor
// slices of a batch: loss_partials.h; inner = 1
int64_t infogain_loss_carry_bytes(const Axis& axis);
Launch infogain_loss_forward(const InfogainArgs& args, const RowSlice& positions, float* loss, void* workspace,
                             void* carry);

// dx (+)= (p[c] sum of matrix[label] - matrix[label][c]) *dloss / divisor; 0 where the label is ignored.  dx over x
Launch infogain_loss_backward(const InfogainArgs& args, float* dx, const float* dloss, bool accumulate, void* workspace,
                              const CountedLabels& counted);

}  // namespace layermem::cpu
