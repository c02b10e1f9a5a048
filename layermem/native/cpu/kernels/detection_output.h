// Boxes of the highest scores, without those that a better one of their class overlaps; layers/detection.py defines it.
#pragma once
#include "cpu/kernels/boxes.h"
#include "cpu/kernels/launch.h"

namespace layermem::cpu {

struct DetectionProblem {
    int64_t items, priors, classes, loc_classes;
    int64_t background;  // a class, or none of them
    BoxCoder coder;
    bool clip;  // boxes end at the borders of the image
    float least_score, threshold, eta;
    int64_t candidates;  // of a class
    int64_t of_item;     // rows
};

int64_t detection_output_workspace_bytes(const DetectionProblem& problem);
// y [items * of_item][7]; locations, scores and boxes as in detection_loss.h
Launch detection_output(const DetectionProblem& problem, float* y, const float* locations, const float* scores,
                        const float* boxes, void* workspace);

}  // namespace layermem::cpu
