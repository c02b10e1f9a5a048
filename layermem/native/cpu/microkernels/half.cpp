// Conversions of arrays, a register at a time (isa/simd_half.h).
#include "cpu/microkernels/half.h"

#include "cpu/isa/simd_half.h"

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

template <class T>
void widen_all(float* out, const uint16_t* in, int64_t count) {
    const auto* from = reinterpret_cast<const T*>(in);
    for_each_vector(0, count, [&](int64_t i, auto n) { store(out + i, load(from + i, n), n); });
}

template <class T>
void narrow_all(uint16_t* out, const float* in, int64_t count) {
    auto* to = reinterpret_cast<T*>(out);
    for_each_vector(0, count, [&](int64_t i, auto n) { store(to + i, load(in + i, n), n); });
}

}  // namespace

const HalfKernels half_kernels = {widen_all<Bf16>, narrow_all<Bf16>, widen_all<Fp16>, narrow_all<Fp16>};

}  // namespace layermem::cpu::LAYERMEM_ISA
