// Depthwise convolution: every channel has its own window (groups = c = k).
#pragma once
#include "cpu/kernels/launch.h"
#include "cpu/microkernels/activation.h"
#include "cpu/microkernels/conv_problem.h"

namespace layermem::cpu {

inline bool is_depthwise(const ConvProblem& p) { return p.groups > 1 && p.groups == p.c && p.groups == p.k; }

int64_t depthwise_workspace_bytes(const ConvProblem& p);  // for fprop and dgrad
int64_t depthwise_wgrad_carry_bytes(const ConvProblem& p);
Launch depthwise_fprop(const ConvProblem& p, float* y, const float* x, const float* w, const float* bias,
                       bool accumulate, bool relu, const ReluMask& mask, void* workspace);
Launch depthwise_dgrad(const ConvProblem& p, float* dx, const float* dy, const float* w, const float* bias,
                       bool accumulate, void* workspace);
// copies: carried by slices; workspace for a whole batch
Launch depthwise_wgrad(const ConvProblem& p, float* dw, const float* x, const float* dy, bool accumulate,
                       float* copies);

}  // namespace layermem::cpu
