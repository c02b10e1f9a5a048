// Region-of-interest pooling; windows are in microkernels/roi_pooling.cpp.
#pragma once
#include "cpu/kernels/launch.h"
#include "cpu/microkernels/roi_pooling.h"

namespace layermem::cpu {

struct RoiShape {
    int64_t n, c;
    Pair size;
    int64_t rois;
    Pair out;
    float spatial_scale;  // pixels of x in one of the image
};

// A launch throws std::invalid_argument where a region is not finite, or lies in an image that does not exist.
Launch roi_pool_forward(const RoiShape& args, float* y, const float* x, const float* regions, OrNull<int32_t> argmax);
Launch roi_pool_backward(const RoiShape& args, float* dx, const float* dy, const float* regions, int32_t* argmax,
                         bool accumulate);

// The mean of channel (k g + i) g + j over window (i, j), g = ho = wo: x [n][h][w][c] -> y [rois][g][g][c / g^2].
Launch ps_roi_pool_forward(const RoiShape& args, float* y, const float* x, const float* regions);
Launch ps_roi_pool_backward(const RoiShape& args, float* dx, const float* dy, const float* regions, bool accumulate);

}  // namespace layermem::cpu
