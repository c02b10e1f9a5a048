// Convolution in float32: fprop, dgrad and wgrad of a ConvProblem, whose layouts are in microkernels/conv_problem.h.
//
// Depthwise problems go to depthwise.h, 3x3 problems with stride 1 and enough channels to winograd.h, all others to
// implicit_gemm.h (fprop, dgrad) or convolution_wgrad.cpp.  The choice depends on the problem only: for a slice of a
// batch, on that of the whole batch.
#pragma once
#include "cpu/kernels/launch.h"
#include "cpu/microkernels/activation.h"
#include "cpu/microkernels/conv_problem.h"
#include "cpu/microkernels/half.h"

namespace layermem::cpu {

// Whether the kernels below take blobs in 16 bits: both blobs, or only that of the output side.
bool conv_is_stored(const ConvProblem& p);
void check_stored(const ConvProblem& p, Storage of_x, Storage of_y);  // std::invalid_argument where they do not

int64_t conv_fprop_workspace_bytes(const ConvProblem& p);
int64_t conv_dgrad_workspace_bytes(const ConvProblem& p);
int64_t conv_wgrad_workspace_bytes(const ConvProblem& p);

// y (+)= x * w [+ bias, unless accumulate] [, relu];  mask: of a y with relu, as relu_forward writes it, or null
Launch conv_fprop(const ConvProblem& p, float* y, const float* x, const float* w, OrNull<const float> bias,
                  bool accumulate, bool relu, const ReluMask& mask, OrNull<void> workspace,
                  Storage of_x = Storage::fp32, Storage of_y = Storage::fp32);
// dx (+)= the gradient of x.  bias [c] is for Deconvolution, whose forward this is.
Launch conv_dgrad(const ConvProblem& p, float* dx, const float* dy, const float* w, OrNull<const float> bias,
                  bool accumulate, OrNull<void> workspace, Storage storage = Storage::fp32);
// dw (+)= the gradient of w.
//
// Slices of a batch, in rising order, carry the sums of the whole batch's launch: copies of dw, or sums in Winograd's
// space.  The first slice begins them, and the last one computes dw from them; the others need no dw.  With 0 bytes to
// carry, the sums are in dw itself: the first slice writes it (or accumulates), all others accumulate.
int64_t conv_wgrad_carry_bytes(const ConvProblem& p);
Launch conv_wgrad(const ConvProblem& p, float* dw, const float* x, const float* dy, bool accumulate,
                  OrNull<void> workspace, OrNull<void> carry, Storage of_x = Storage::fp32,
                  Storage of_dy = Storage::fp32);

}  // namespace layermem::cpu
