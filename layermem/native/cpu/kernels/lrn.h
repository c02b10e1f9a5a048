// Local response normalization; formulas are in microkernels/lrn.h.
#pragma once
#include "cpu/kernels/launch.h"
#include "cpu/microkernels/lrn.h"

namespace layermem::cpu {

// across: the window covers `size` channels of one pixel; otherwise size x size pixels of one channel.
// Across channels y may be x, and dx may be x or dy; within a channel the outputs must not overlap the inputs.
int64_t lrn_workspace_bytes(int64_t n, int64_t h, int64_t w, int64_t c, int64_t size, bool across, bool backward);
Launch lrn_forward(const LrnArgs& args, bool across, OrNull<void> workspace);
Launch lrn_backward(const LrnArgs& args, bool across, OrNull<void> workspace);

}  // namespace layermem::cpu
