// The loss of a grid of predictions against true boxes (YOLO v2); layers/yolo.py defines it.
#pragma once
#include <vector>

#include "cpu/kernels/launch.h"

namespace layermem::cpu {

struct RegionProblem {
    int64_t items, side, classes, rows;
    uint64_t warm_up;            // steps
    std::vector<float> anchors;  // width and height of each, in cells
    float object_scale, noobject_scale, class_scale, coord_scale, threshold;
    bool rescore, bias_match;
};

int64_t region_loss_workspace_bytes(const RegionProblem& problem);
// x [items][side][side][anchors][5 + classes], truth [items][rows][5].  A launch throws std::invalid_argument where a
// true box is in no cell or of no class.
StepLaunch region_loss_forward(const RegionProblem& problem, float* loss, const float* x, const float* truth,
                               void* workspace);
// dx may be x.
StepLaunch region_loss_backward(const RegionProblem& problem, float* dx, const float* dloss, const float* x,
                                const float* truth, bool accumulate, void* workspace);

}  // namespace layermem::cpu
