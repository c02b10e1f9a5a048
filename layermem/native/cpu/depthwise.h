// Depthwise convolution: every channel has its own window (groups = c = k).  Lanes are channels.
#pragma once
#include <cstdint>

#include "convolution.h"

namespace layermem::cpu {

struct DepthwiseArgs {
    Conv g;
    float* out;
    const float* in;    // x, or dy for the data gradient
    const float* w;     // packed [taps][pitch]
    const float* bias;  // of out's channels, or null
    int64_t pitch;
    bool accumulate, relu;
};

struct DepthwiseSums {
    Conv g;
    float* out;  // [taps][c]
    const float *x, *dy;
};

inline bool is_depthwise(const Conv& g) { return g.groups > 1 && g.groups == g.c && g.groups == g.k; }

int64_t depthwise_workspace(const Conv&);
int64_t depthwise_weights_workspace(const Conv&);
Launch depthwise_forward(const Conv&, float* y, const float* x, const float* w, const float* bias, bool accumulate,
                         bool relu, uint8_t* mask, void* scratch);
Launch depthwise_backward_data(const Conv&, float* dx, const float* dy, const float* w, const float* bias,
                               bool accumulate, void* scratch);
Launch depthwise_backward_weights(const Conv&, float* dw, const float* x, const float* dy, bool accumulate,
                                  void* scratch);

}  // namespace layermem::cpu
