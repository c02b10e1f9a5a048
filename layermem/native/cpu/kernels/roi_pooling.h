// Region-of-interest pooling; windows are in microkernels/roi_pooling.cpp.
#pragma once
#include "cpu/kernels/launch.h"
#include "cpu/microkernels/roi_pooling.h"

namespace layermem::cpu {

// A launch throws std::invalid_argument where a region is not finite, or lies in an image that there is not.
Launch roi_pool_forward(const RoiPoolArgs& args);
Launch roi_pool_backward(const RoiPoolArgs& args);

// The mean of channel (k g + i) g + j over window (i, j), g = ho = wo: x [n][h][w][c] -> y [rois][g][g][c / g^2].
Launch ps_roi_pool_forward(const RoiPoolArgs& args);
Launch ps_roi_pool_backward(const RoiPoolArgs& args);

}  // namespace layermem::cpu
