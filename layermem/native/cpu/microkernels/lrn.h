// Local response normalization, across channels or within a channel.
//
//     s = k + alpha * (sum of x^2 over the window)      y = x s^-beta
//     dx = dy s^-beta - 2 alpha beta x * (sum over the window of dy x s^(-beta - 1))
#pragma once
#include <cstdint>

#include "cpu/isa/isa.h"

namespace layermem::cpu {

struct LrnArgs {
    int64_t n, h, w, c;
    int64_t size;          // of the window, odd: channels, or pixels along h and w
    float alpha, k, beta;  // alpha per element: Caffe's alpha / size (across) or alpha / size^2 (within)
    float* out;            // y or dx
    const float* x;
    OrNull<const float> dy;  // backward only
    bool accumulate;         // backward only
};

struct LrnKernels {
    // Across channels, on pixels [begin, end) of n * h * w.  workspace: 3 rows of c + size - 1 floats.
    void (*across)(const LrnArgs&, int64_t begin, int64_t end, float* workspace);
    void (*across_backward)(const LrnArgs&, int64_t begin, int64_t end, float* workspace);

    // Within a channel, on one row of n * h.  products null: forward.  Otherwise backward's first pass, which writes
    // dy x s^(-beta - 1) and dy s^-beta of the row into products [2][h][w][c] of its image.
    void (*within)(const LrnArgs&, int64_t row, float* products);
    void (*within_backward)(const LrnArgs&, int64_t row, const float* products);  // the second pass
};
LAYERMEM_KERNEL_TABLE(LrnKernels, lrn_kernels)

}  // namespace layermem::cpu
