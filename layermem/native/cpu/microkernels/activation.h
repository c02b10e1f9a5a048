// Functions of one element, or of two elements at the same place; ReLU and Clip with a bit mask for backward.
#pragma once
#include <cstdint>

#include "cpu/isa/isa.h"

namespace layermem::cpu {

enum class PointwiseKind;  // pointwise_kinds.h, which only the files that name a kind include

struct Pointwise {  // out[i] (+)= f(a[i], b[i]);  out may be a or b
    PointwiseKind kind;
    float* out;
    const float* a;            // null where f takes no argument
    const float* b;            // null where f takes less than two
    float alpha, beta, gamma;  // the constants of f, see pointwise_kinds.h
    bool accumulate;           // out += instead of out =
};

// A bit for each element: bit i % 8 of byte i / 8 for element i, set where that is above `largest_zero`, the largest number
// that becomes zero where the blob is stored.
struct ReluMask {
    OrNull<uint8_t> bits = nullptr;
    float largest_zero = 0;
};

struct Relu {
    float* out;       // y or dx; forward: null where only the mask is wanted
    const float* in;  // x or dy
    ReluMask mask;    // of x; forward: bits are written where not null; backward: read
    float slope;      // of negative x
    bool accumulate;  // backward only
};

struct Clip {
    float* out;
    const float* in;
    uint8_t* mask;  // bits as those of a ReluMask: lowest <= x <= highest
    float lowest, highest;
};

struct ActivationKernels {  // each on elements [begin, end)
    void (*pointwise)(const Pointwise&, int64_t begin, int64_t end);
    void (*relu_forward)(const Relu&, int64_t begin, int64_t end);   // begin: a multiple of 16
    void (*relu_backward)(const Relu&, int64_t begin, int64_t end);  // likewise
    void (*clip_forward)(const Clip&, int64_t begin, int64_t end);   // likewise
};
LAYERMEM_KERNEL_TABLE(ActivationKernels, activation_kernels)

}  // namespace layermem::cpu
