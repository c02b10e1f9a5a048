// Between fp32 and 16 bits: bfloat16, the upper half of a float.
#pragma once
#include <cstdint>

#include "cpu/isa/isa.h"

namespace layermem::cpu {

struct HalfKernels {
    void (*widen)(float* out, const uint16_t* in, int64_t count);
    void (*narrow)(uint16_t* out, const float* in, int64_t count);  // ties to even; every NaN becomes 0x7fff
};
LAYERMEM_KERNEL_TABLE(HalfKernels, half_kernels)

}  // namespace layermem::cpu
