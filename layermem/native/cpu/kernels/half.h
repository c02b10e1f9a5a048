// Arrays between fp32 and 16 bits, as blobs are stored (layermem/graph/storage.py).
#pragma once
#include <cstdint>

#include "cpu/kernels/launch.h"

namespace layermem::cpu {

Launch widen_bf16(int64_t count, float* out, const uint16_t* x);
Launch narrow_bf16(int64_t count, uint16_t* out, const float* x);
Launch widen_fp16(int64_t count, float* out, const uint16_t* x);
Launch narrow_fp16(int64_t count, uint16_t* out, const float* x);

}  // namespace layermem::cpu
