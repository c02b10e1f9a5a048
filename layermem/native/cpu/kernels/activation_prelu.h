// PReLU: y = x > 0 ? x : slope x, with one slope per channel, or a shared one (Channels(1, 1, count)).
#pragma once
#include "cpu/kernels/launch.h"
#include "cpu/microkernels/channels.h"

namespace layermem::cpu {

Launch prelu_forward(const Channels& shape, float* y, const float* x, const float* slope);

int64_t prelu_backward_workspace_bytes(const Channels& shape);
// dx and dslope are null if not wanted; dx may be x or dy
Launch prelu_backward(const Channels& shape, OrNull<float> dx, OrNull<float> dslope, const float* x, const float* dy,
                      OrNull<const float> slope, bool accumulate_dx, bool accumulate_dslope, OrNull<void> workspace);

}  // namespace layermem::cpu
