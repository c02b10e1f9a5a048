// The default boxes of a map of scores.
#pragma once
#include <vector>

#include "cpu/kernels/launch.h"

namespace layermem::cpu {

struct BoxStep {
    float h, w;
};

struct PriorBoxes {
    Pair size;                           // rows and columns of the map
    std::vector<float> widths, heights;  // of the boxes of a pixel, in pixels of the image
    BoxStep step;                        // pixels of the image from one center to the next
    float offset;                        // of the first, in steps
    Pair image;
    bool clip;                    // corners to 0 .. 1
    std::vector<float> variance;  // four
};

// y [2][rows][columns][boxes][4]: left, top, right, bottom in images; then the variances
Launch prior_box(const PriorBoxes& args, float* y);

}  // namespace layermem::cpu
