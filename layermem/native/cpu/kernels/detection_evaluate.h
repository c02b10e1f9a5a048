// Decides which detections are right; layers/detection.py defines it.
#pragma once
#include "cpu/kernels/boxes.h"
#include "cpu/kernels/launch.h"

namespace layermem::cpu {

struct EvaluationProblem {
    int64_t detections, truths, classes, background;
    int64_t rows;         // of y
    int64_t sized_items;  // items with a size, whose boxes are compared in pixels; 0: in fractions
    float overlap_threshold;
    bool difficult;
};

int64_t detection_evaluate_workspace_bytes(const EvaluationProblem& problem);
// y [rows][5], detections [detections][7], truth [truths][8].  A launch throws std::invalid_argument where a box is of
// no class, or not finite, or a detection is of no item with a size.  sizes [sized_items][6]: the window of the item that
// is its image, left, top, right, bottom, and the image's width and height in pixels.
Launch detection_evaluate(const EvaluationProblem& problem, float* y, const float* detections, const float* truth,
                          const float* sizes, void* workspace);

}  // namespace layermem::cpu
