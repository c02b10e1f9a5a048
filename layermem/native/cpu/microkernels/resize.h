// Bilinear interpolation between corners: the first and last pixels of both images coincide.
#pragma once
#include <cstdint>

#include "cpu/isa/isa.h"

namespace layermem::cpu {

struct InterpArgs {
    int64_t n, c, h, w, ho, wo;                // x [n][h][w][c], y [n][ho][wo][c]
    int64_t begin_h, size_h, begin_w, size_w;  // the region of x that is sampled, in pixels
    float* out;                                // y or dx
    const float* in;                           // x or dy
    bool accumulate;                           // backward only
};

struct ResizeKernels {
    void (*interp)(const InterpArgs&, int64_t row);           // row of y: [0, n * ho)
    void (*interp_backward)(const InterpArgs&, int64_t row);  // row of dx: [0, n * h)
};
LAYERMEM_KERNEL_TABLE(ResizeKernels, resize_kernels)

}  // namespace layermem::cpu
