// Depthwise convolution (groups = c = k), one row of pixels at a time; lanes are channels.
#pragma once
#include <cstdint>

#include "cpu/isa/isa.h"
#include "cpu/microkernels/conv_problem.h"

namespace layermem::cpu {

struct DepthwiseArgs {
    ConvProblem problem;
    float* out;         // y, or dx
    const float* in;    // x, or dy
    const float* w;     // packed [taps][pitch]
    const float* bias;  // of out's channels, or null
    int64_t pitch;
    bool accumulate, relu;
};

struct DepthwiseSums {
    ConvProblem problem;
    float* out;  // dw as [taps][c]
    const float *x, *dy;
    bool accumulate;
};

struct DepthwiseKernels {
    void (*fprop)(const DepthwiseArgs&, int64_t row);                 // row of y: [0, n * ho)
    void (*dgrad)(const DepthwiseArgs&, int64_t row);                 // row of dx: [0, n * h)
    void (*wgrad)(const DepthwiseSums&, int64_t begin, int64_t end);  // summed over rows [begin, end) of y
};
LAYERMEM_KERNEL_TABLE(DepthwiseKernels, depthwise_kernels)

}  // namespace layermem::cpu
