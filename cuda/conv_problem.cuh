// The geometry of a convolution, as an argument of kernels.
#pragma once
#include "common.cuh"

namespace lm {

// channels and outputs are per group; a pitch is the elements of a whole pixel in memory.
struct ConvProblem {
    int images, height, width, channels, image_pitch;
    int maps_h, maps_w, outputs, maps_pitch;
    int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
};

// Where images lie in memory, counted in images: one after the other, or frame by frame.
struct InOrder {
    LM_MEMBER int place_of(int image) const { return image; }
};
struct ByFrame {
    const Divider& per_item;
    int step;

    LM_MEMBER int place_of(int image) const {
        const int item = divide(image, per_item);
        return item + (image - item * static_cast<int>(per_item.divisor)) * step;
    }

    // The same of windows, which lie image by image.
    LM_MEMBER int place_of_window(int window, const Divider& by_window) const {
        const int image = divide(window, by_window), each = by_window.divisor;
        return place_of(image) * each + window - image * each;
    }
};

// Image i is frame i % per_item of item i / per_item, and the next frame of an item lies image_step images, or maps_step
// maps, behind it; with one per item, images lie one after the other.
struct Frames {
    Divider per_item;
    int image_step, maps_step;

    LM_MEMBER ByFrame of_image() const { return {per_item, image_step}; }
    LM_MEMBER ByFrame of_maps() const { return {per_item, maps_step}; }
};

}  // namespace lm
