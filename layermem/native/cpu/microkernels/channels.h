// Functions of each element and of its channel's numbers, and sums over a channel: for Scale, Bias, BatchNorm, PReLU.
// x is [outer][channels][inner]; a channels-last image has outer = n * h * w and inner = 1.
#pragma once
#include <cstdint>

#include "cpu/isa/isa.h"

namespace layermem::cpu {

struct Channels {
    int64_t outer, channels, inner;
    int64_t count() const { return outer * channels * inner; }
    int64_t lines() const { return inner == 1 ? outer : outer * channels; }  // contiguous runs that a task processes
    int64_t line() const { return inner == 1 ? channels : inner; }           // elements of each
    void check() const;                                                      // std::invalid_argument for a size below 1
};

enum class AffineKind {
    scale,               // a * scale [+ bias]                          Scale, and its data gradient
    shift,               // a + bias                                    Bias
    normalize,           // (a - mean) * scale                          BatchNorm, scale = inv_std
    normalize_backward,  // scale * (a - mean_dy - (x - mean) * covariance)              a = dy
    fused,               // (a - mean) * scale + bias [, relu]          BatchNorm + Scale [+ ReLU]
    fused_residual,      // (a - mean) * scale + bias + x               BatchNorm + Scale + sum with x
    fused_backward,      // as normalize_backward, with a = 0 where relu and (x - mean) * scale + bias <= largest_zero
    prelu,               // a > 0 ? a : scale * a
    prelu_backward,      // x > 0 ? a : scale * a                       a = dy
};

struct ChannelAffine {  // out = f(a), or out += f(a)
    Channels shape;
    AffineKind kind;
    float* out;
    const float* a;                     // x or dy
    const float* x;                     // backward: the input of forward; fused_residual: the residual
    const float *mean, *scale, *bias;   // [channels]
    const float *mean_dy, *covariance;  // [channels]: mean of dy, mean of dy xhat times inv_std
    bool relu, accumulate;
    float largest_zero;  // where y is stored: what is above it is positive there
};

enum class SumKind {
    moments,     // mean of a, sum of squared differences from it
    plain,       // sum a
    product,     // sum a x, sum a
    normalized,  // sum a (x - mean) inv_std, sum a              a = dy
    fused,       // likewise, with a = 0 where relu and (x - mean) * scale + bias <= largest_zero
    prelu,       // sum a min(x, 0)                              a = dy
};

// Whether a sum begins with zero, or continues the sum that is there: by blocks of kSumLines lines, or by single lines.
enum class SumInit { zero, blocks, lines };
constexpr int64_t kSumLines = 64;  // lines of a block with inner = 1

struct ChannelSum {
    Channels shape;
    SumKind kind;
    const float *a, *x;
    const float *mean, *inv_std, *scale, *bias;  // [channels]
    bool relu;
    float largest_zero;  // as of ChannelAffine
    float* out;          // the first number of each channel, and from `channels` floats on the second
    SumInit init;        // not of moments; with inner > 1 the two that continue are one
    int64_t before;      // of moments: indices of outer whose moments `out` has already, whole blocks of them
};

struct ChannelKernels {
    void (*affine)(const ChannelAffine&, int64_t begin, int64_t end);  // lines [begin, end)
    void (*sum)(const ChannelSum&, int64_t begin, int64_t end);        // [begin, end) of outer
};
LAYERMEM_KERNEL_TABLE(ChannelKernels, channel_kernels)

}  // namespace layermem::cpu
