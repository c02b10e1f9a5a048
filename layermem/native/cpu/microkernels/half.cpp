// Conversions on the bits of integers, which compilers turn into vectors for every instruction set.
#include "cpu/microkernels/half.h"

#include <cstring>

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

constexpr uint32_t kInfinity = 0x7f800000, kMagnitude = 0x7fffffff, kNan = 0x7fff;

void widen(float* out, const uint16_t* in, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
        const uint32_t bits = static_cast<uint32_t>(in[i]) << 16;
        std::memcpy(out + i, &bits, sizeof bits);
    }
}

void narrow(uint16_t* out, const float* in, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
        uint32_t bits;
        std::memcpy(&bits, in + i, sizeof bits);
        const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        out[i] = static_cast<uint16_t>((bits & kMagnitude) > kInfinity ? kNan : rounded);
    }
}

}  // namespace

const HalfKernels half_kernels = {widen, narrow};

}  // namespace layermem::cpu::LAYERMEM_ISA
