// The default boxes of a map of scores.
#pragma once
#include <vector>

#include "cpu/kernels/launch.h"

namespace layermem::cpu {

struct PriorBoxes {
    int64_t rows, columns;
    std::vector<float> widths, heights;  // of the boxes of a pixel, in pixels of the image
    float step_h, step_w;                // pixels of the image from one center to the next
    float offset;                        // of the first, in steps
    int64_t image_h, image_w;
    bool clip;                    // corners to 0 .. 1
    std::vector<float> variance;  // four
};

// y [2][rows][columns][boxes][4]: left, top, right, bottom in images; then the variances
Launch prior_box(const PriorBoxes& boxes, float* y);

}  // namespace layermem::cpu
