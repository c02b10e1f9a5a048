// The loss of one of several grids of predictions against true boxes (YOLO v3); layers/yolo.py defines it.
#pragma once
#include <vector>

#include "cpu/kernels/launch.h"

namespace layermem::cpu {

struct GridLossProblem {
    int64_t items, side, classes, rows;
    std::vector<float> anchors;  // width and height of each, of all grids
    std::vector<int64_t> mask;   // those of this grid
    float divisor;               // of anchors
    float object_scale, class_scale, coord_scale, threshold;
    bool logistic;  // the gradient is that of squares
};

int64_t grid_loss_workspace_bytes(const GridLossProblem& problem);
// x [items][side][side][mask][5 + classes], truth [items][rows][5].  A launch throws std::invalid_argument where a true
// box is in no cell or of no class.
Launch grid_loss_forward(const GridLossProblem& problem, float* loss, const float* x, const float* truth,
                         void* workspace);
// dx may be x.
Launch grid_loss_backward(const GridLossProblem& problem, float* dx, const float* dloss, const float* x,
                          const float* truth, bool accumulate, void* workspace);

}  // namespace layermem::cpu
