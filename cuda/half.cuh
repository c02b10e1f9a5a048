// The 16-bit formats of stored activations, each as one type:
//   round(x)           the bits of x, rounded to nearest, ties to even; infinity past the largest; a NaN becomes 0x7fff
//   pack(low, high)    two of them in one register, `low` in bits 0 to 15, the place of the lower address
//   low(both), high(both)     the numbers of such a register
//   source   layermem/backends/narrow.py; F. Giesen, float_to_half_fast3_rtne, for float16 by integers
#pragma once
#include "common.cuh"

namespace lm {

struct Bf16 {
    unsigned short bits;
    static LM_MEMBER unsigned short round(float x) { return bf16_round(x); }
    static LM_MEMBER unsigned pack(float low, float high) { return bf16_pack(low, high); }
    static LM_MEMBER float low(unsigned both) { return bf16_low(both); }
    static LM_MEMBER float high(unsigned both) { return bf16_high(both); }
};

// IEEE 754 binary16: 5 bits of exponent, 10 of fraction.
struct Fp16 {
    unsigned short bits;
    static LM_MEMBER unsigned short round(float x) {
#if !defined(LM_EMULATE)
        unsigned short bits;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
        return x != x ? 0x7fff : bits;
#else
        const unsigned bits = __float_as_uint(x), magnitude = bits & 0x7fffffffu, sign = (bits >> 16) & 0x8000u;
        if (magnitude > 0x7f800000u) return 0x7fff;
        if (magnitude >= 0x47800000u) return static_cast<unsigned short>(sign | 0x7c00u);  // from 65536 on
        if (magnitude < 0x38800000u) {  // below 2^-14: the last bit of 0.5 is that of subnormal numbers
            const unsigned rounded = __float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000u;
            return static_cast<unsigned short>(sign | rounded);
        }
        return static_cast<unsigned short>(sign |
                                           ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13));
#endif
    }

    static LM_MEMBER unsigned pack(float low, float high) {
        return static_cast<unsigned>(round(low)) | static_cast<unsigned>(round(high)) << 16;
    }

    static LM_MEMBER float low(unsigned both) {
#if !defined(LM_EMULATE)
        float x;
        asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(static_cast<unsigned short>(both)));
        return x;
#else
        const unsigned magnitude = (both & 0x7fffu) << 13, sign = (both & 0x8000u) << 16;
        if (magnitude >= 0x0f800000u) return __uint_as_float(sign | (magnitude + 0x70000000u));  // infinity, NaN
        if (magnitude >= 0x00800000u) return __uint_as_float(sign | (magnitude + 0x38000000u));
        const float subnormal = __uint_as_float(magnitude + 0x38800000u) - __uint_as_float(0x38800000u);
        return __uint_as_float(sign | __float_as_uint(subnormal));
#endif
    }

    static LM_MEMBER float high(unsigned both) { return low(both >> 16); }
};

}  // namespace lm
