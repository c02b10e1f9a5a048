// The geometry of a convolution, as an argument of kernels.
#pragma once

namespace lm {

// channels and outputs are per group; a pitch is the elements of a whole pixel in memory.
struct ConvProblem {
    int images, height, width, channels, image_pitch;
    int maps_h, maps_w, outputs, maps_pitch;
    int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
};

}  // namespace lm
