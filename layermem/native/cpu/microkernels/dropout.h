// Dropout: out = in * gain, or 0 where the random word of the element is below a bound.
#pragma once
#include <cstdint>

#include "cpu/isa/isa.h"

namespace layermem::cpu {

struct Dropout {  // forward: x to y;  backward: dy to dx, by the same words
    float* out;
    const float* in;
    uint32_t key[2];  // seed, stream
    uint64_t step;    // of training
    uint32_t bound;   // elements whose word is below it are dropped
    float gain;       // of the others: 1 / (1 - ratio)
    bool accumulate;
    int64_t first;  // number of the first element: words belong to numbers
};

struct DropoutKernels {
    void (*dropout)(const Dropout&, int64_t begin, int64_t end);  // elements; begin: a multiple of 64
};
LAYERMEM_KERNEL_TABLE(DropoutKernels, dropout_kernels)

}  // namespace layermem::cpu
