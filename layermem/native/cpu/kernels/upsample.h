// Pixels at the places of a mask, the inverse of a MAX pooling.  Maps are channels-last: x, mask [n][pixels][c].
#pragma once
#include "cpu/kernels/launch.h"

namespace layermem::cpu {

// y [n][plane][c] is x at the places of the mask, and 0 elsewhere; of several pixels with one place it has the last.
// A launch throws std::invalid_argument for a place outside of the plane.
Launch unpool_forward(int64_t n, int64_t c, int64_t pixels, int64_t plane, float* y, const float* x, const float* mask);
// dx = dy at the places of the mask, which forward has checked
Launch unpool_backward(int64_t n, int64_t c, int64_t pixels, int64_t plane, float* dx, const float* dy,
                       const float* mask, bool accumulate);

}  // namespace layermem::cpu
