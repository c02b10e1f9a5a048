// Maxima of a grid of windows over each region of interest: x [n][h][w][c] -> y [rois][ho][wo][c].  Lanes are channels.
#pragma once
#include <cstdint>

#include "cpu/isa/isa.h"

namespace layermem::cpu {

struct RoiPoolArgs {
    int64_t n, c, h, w, rois, ho, wo;
    float spatial_scale;   // pixels of x in one of the image
    float* out;            // y;  backward: dx
    const float* in;       // x;  backward: dy
    const float* regions;  // [rois][5]: item, x1, y1, x2, y2 in pixels of the image
    int32_t* argmax;  // [rois][ho][wo][c]: row * w + column in x, -1 of an empty window; null: not wanted (forward)
    bool accumulate;  // backward only
};

struct RoiPoolingKernels {
    void (*forward)(const RoiPoolArgs&, int64_t row);   // row of y: [0, rois * ho)
    void (*backward)(const RoiPoolArgs&, int64_t row);  // row of dx: [0, n * h)
};
LAYERMEM_KERNEL_TABLE(RoiPoolingKernels, roi_pooling_kernels)

}  // namespace layermem::cpu
