// Vectors of length one, times a scale: y = w x / n, n = sqrt(sum x^2 + eps).
//
// With g = w dy:  dx = (g - x sum(g x) / n^2) / n,  dw = sum of dy x / n.
#pragma once
#include <cstdint>

#include "cpu/isa/isa.h"

namespace layermem::cpu {

struct L2NormArgs {
    int64_t pixels, channels;  // x [pixels][channels]
    int64_t group;             // consecutive pixels that share a norm
    bool shared;               // one scale, else one per channel
    float eps;
    float* out;  // y or dx
    const float *x, *dy, *scale;
    float* squares;  // [pixels]: sums of x^2, then [pixels / group]: 1 / n
    float* dots;  // [pixels]: sums of dy x, or of w dy x where each channel has its own; then [pixels / group] of g x
    bool accumulate;
};

struct L2NormKernels {
    void (*sums)(const L2NormArgs&, int64_t begin, int64_t end);      // squares, and dots where dy is not null
    void (*forward)(const L2NormArgs&, int64_t begin, int64_t end);   // y of pixels [begin, end)
    void (*backward)(const L2NormArgs&, int64_t begin, int64_t end);  // dx of pixels [begin, end)
    // out [channels] = or, if it continues one, += the sum of dy x / n over pixels [begin, end)
    void (*scale_sums)(const L2NormArgs&, int64_t begin, int64_t end, float* out, bool continues);
};
LAYERMEM_KERNEL_TABLE(L2NormKernels, l2norm_kernels)

}  // namespace layermem::cpu
