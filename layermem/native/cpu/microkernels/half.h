// Between fp32 and 16 bits: bfloat16, the upper half of a float, and float16 (IEEE 754 binary16: 5 bits of exponent,
// 10 of fraction).
#pragma once
#include <cstdint>

#include "cpu/isa/isa.h"

namespace layermem::cpu {

// How a blob lies in memory.  Kernels that take blobs in 16 bits get their addresses as those of floats, with this word.
enum class Storage { fp32, bf16, fp16 };
constexpr int kStorages = 3;

// The kernel of a table for a storage.
template <class Kernel>
Kernel of_storage(const Kernel (&kernels)[kStorages], Storage storage) {
    return kernels[static_cast<int>(storage)];
}

using Widen = void (*)(float* out, const uint16_t* in, int64_t count);
using Narrow = void (*)(uint16_t* out, const float* in, int64_t count);  // ties to even; every NaN becomes 0x7fff

struct HalfKernels {
    Widen widen_bf16;
    Narrow narrow_bf16;
    Widen widen_fp16;
    Narrow narrow_fp16;
};
LAYERMEM_KERNEL_TABLE(HalfKernels, half_kernels)

}  // namespace layermem::cpu
