// Which detections are right; layers/detection.py states it.
#pragma once
#include "cpu/kernels/boxes.h"
#include "cpu/kernels/launch.h"

namespace layermem::cpu {

struct EvaluationProblem {
    int64_t detections, truths, classes, background;
    int64_t rows;  // of y
    float overlap_threshold;
    bool difficult;
};

int64_t detection_evaluate_workspace_bytes(const EvaluationProblem& problem);
// y [rows][5], detections [detections][7], truth [truths][8].  A launch throws std::invalid_argument where a box is of
// no class, or not finite.
Launch detection_evaluate(const EvaluationProblem& problem, float* y, const float* detections, const float* truth,
                          void* workspace);

}  // namespace layermem::cpu
