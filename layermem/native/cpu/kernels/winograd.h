// 3x3 convolution with stride 1 by Winograd's F(2x2, 3x3): 16 products per channel pair where the direct sum takes 36.
//
//     y tile 2x2 = A' [ (G g G') * (B' d B) ] A        d: the 4x4 pixels under the tile, g: the window
//     dw 3x3     = G' [ sum over tiles (A dy A') * (B' d B) ] G
//
// so a convolution becomes 16 matrix products, one per element of the 4x4 tiles, between two cheap transforms along
// channels.  dgrad is the convolution of dy with the window rotated by 180 degrees.
//
// source   Lavin, Gray: Fast algorithms for convolutional neural networks (CVPR 2016)
#pragma once
#include "cpu/kernels/launch.h"
#include "cpu/microkernels/conv_problem.h"

namespace layermem::cpu {

bool is_winograd(const ConvProblem& p);  // whether the kernels below take the problem and are the fastest for it
int64_t winograd_fprop_workspace_bytes(const ConvProblem& p);
int64_t winograd_dgrad_workspace_bytes(const ConvProblem& p);
int64_t winograd_wgrad_workspace_bytes(const ConvProblem& p);
Launch winograd_fprop(const ConvProblem& p, float* y, const float* x, const float* w, const float* bias,
                      bool accumulate, bool relu, uint8_t* mask, void* workspace);
Launch winograd_dgrad(const ConvProblem& p, float* dx, const float* dy, const float* w, const float* bias,
                      bool accumulate, void* workspace);
Launch winograd_wgrad(const ConvProblem& p, float* dw, const float* x, const float* dy, bool accumulate,
                      void* workspace);

}  // namespace layermem::cpu
