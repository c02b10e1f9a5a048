// Scale and Bias: x times a factor per channel, plus a bias per channel.  y may be x; dx may be x or dy.
#pragma once
#include "cpu/kernels/launch.h"
#include "cpu/microkernels/channels.h"

namespace layermem::cpu {

Launch scale_forward(const Channels& shape, float* y, const float* x, const float* factor, OrNull<const float> bias);
Launch bias_forward(const Channels& shape, float* y, const float* x, const float* bias);

struct ScaleBackward {
    OrNull<float> dx, dfactor, dbias;  // null for a gradient that is not wanted
    OrNull<const float> x, factor;     // x is read for dfactor only, factor for dx only
    const float* dy;
    bool accumulate_dx, accumulate_dfactor, accumulate_dbias;
};
int64_t scale_backward_workspace_bytes(const Channels& shape);
Launch scale_backward(const Channels& shape, const ScaleBackward& args, OrNull<void> workspace);

}  // namespace layermem::cpu
