// Boxes of the highest scores of grids of predictions (YOLO); layers/yolo.py defines it.
#pragma once
#include <vector>

#include "cpu/kernels/launch.h"

namespace layermem::cpu {

struct GridProblem {
    int64_t items, classes;
    std::vector<int64_t> sides;               // of each grid, as all following members
    std::vector<std::vector<float>> anchors;  // width and height of each
    std::vector<float> divisors;              // of anchors
    bool softmax;
    float least_score, threshold;
};

int64_t grid_detections_workspace_bytes(const GridProblem& problem);
// y [items * predictions][7]; xs[t] [items][side][side][anchors][5 + classes]
Launch grid_detections(const GridProblem& problem, float* y, const std::vector<const float*>& xs, void* workspace);

}  // namespace layermem::cpu
