// 3x3 convolution with stride 1 by Winograd's F(m x m, 3x3).  Per channel pair and 4x4 outputs, F(4x4, 3x3) takes 36
// products and F(2x2, 3x3) 64, where the direct sum takes 144.
//
//     y tile m x m = A' [ (G g G') * (B' d B) ] A        d: the (m + 2) x (m + 2) pixels under the tile, g: the window
//     dw 3x3       = G' [ sum over tiles (A dy A') * (B' d B) ] G
//
// so a convolution becomes (m + 2)^2 matrix products, one per element of the tiles, between two cheap transforms along
// channels.  dgrad is the convolution of dy with the window rotated by 180 degrees.
//
// The error of fprop against float64, relative to the largest output, with 256 channels of normal data: 6e-7 for
// F(2x2, 3x3), 2e-6 for F(4x4, 3x3) with the points of microkernels/winograd.cpp, 1.3e-6 for the direct sum.
//
// source   Lavin, Gray: Fast algorithms for convolutional neural networks (CVPR 2016)
#pragma once
#include "cpu/kernels/launch.h"
#include "cpu/microkernels/activation.h"
#include "cpu/microkernels/conv_problem.h"
#include "cpu/microkernels/half.h"

namespace layermem::cpu {

bool is_winograd(const ConvProblem& p);       // whether the kernels below take the problem and are the fastest for it
int64_t winograd_tile(const ConvProblem& p);  // m of the form that they use; 0: they do not
int64_t winograd_fprop_workspace_bytes(const ConvProblem& p);
int64_t winograd_dgrad_workspace_bytes(const ConvProblem& p);
int64_t winograd_wgrad_workspace_bytes(const ConvProblem& p);
int64_t winograd_wgrad_carry_bytes(const ConvProblem& p);
Launch winograd_fprop(const ConvProblem& p, float* y, const float* x, const float* w, const float* bias,
                      bool accumulate, bool relu, const ReluMask& mask, void* workspace, Storage of_x, Storage of_y);
Launch winograd_dgrad(const ConvProblem& p, float* dx, const float* dy, const float* w, const float* bias,
                      bool accumulate, void* workspace, Storage storage);
// carry: of a slice of a batch, the sums over tiles of all groups; a whole batch has them in the workspace
Launch winograd_wgrad(const ConvProblem& p, float* dw, const float* x, const float* dy, bool accumulate,
                      void* workspace, void* carry, Storage of_x, Storage of_dy);

}  // namespace layermem::cpu
