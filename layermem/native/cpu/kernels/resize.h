// Interp: bilinear interpolation of a region of each image.
#pragma once
#include "cpu/kernels/launch.h"
#include "cpu/microkernels/resize.h"

namespace layermem::cpu {

//
// x [n][size][c], of which the pixels of `region` from `begin` on are sampled; y [n][out][c]
Launch interp_forward(int64_t n, int64_t c, Pair size, Pair out, Pair begin, Pair region, float* y, const float* x);
Launch interp_backward(int64_t n, int64_t c, Pair size, Pair out, Pair begin, Pair region, float* dx, const float* dy,
                       bool accumulate);

}  // namespace layermem::cpu
