// The maximum of several arrays, element by element, and which array it came from.
#pragma once
#include <cstdint>

#include "cpu/isa/isa.h"

namespace layermem::cpu {

struct ArgMaxSelect {  // one input of an Eltwise MAX; of equal inputs the last wins
    float* out;        // forward: the maximum so far;  backward: dx of this input
    const float* in;   // forward: this input;  backward: dy
    uint8_t* argmax;   // number of the input that has the maximum, or null (forward only)
    int32_t index;     // number of this input; 0 starts afresh
    bool accumulate;   // backward only
};

struct EltwiseKernels {  // each on elements [begin, end)
    void (*max_forward)(const ArgMaxSelect&, int64_t begin, int64_t end);
    void (*max_backward)(const ArgMaxSelect&, int64_t begin, int64_t end);
};
LAYERMEM_KERNEL_TABLE(EltwiseKernels, eltwise_kernels)

}  // namespace layermem::cpu
