// Scale and Bias: x times a factor per channel, plus a bias per channel.  y may be x; dx may be x or dy.
#pragma once
#include "cpu/kernels/launch.h"
#include "cpu/microkernels/channels.h"

namespace layermem::cpu {

Launch scale_forward(const Channels& shape, float* y, const float* x, const float* factor, const float* bias);
Launch bias_forward(const Channels& shape, float* y, const float* x, const float* bias);

struct ScaleBackward {
    float *dx, *dfactor, *dbias;   // null for a gradient that is not wanted
    const float *x, *dy, *factor;  // x is read for dfactor only, factor for dx only
    bool accumulate_dx, accumulate_dfactor, accumulate_dbias;
};
int64_t scale_backward_workspace_bytes(const Channels& shape);
Launch scale_backward(const Channels& shape, const ScaleBackward& args, void* workspace);

}  // namespace layermem::cpu
