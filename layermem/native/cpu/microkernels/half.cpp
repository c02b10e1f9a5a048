// Conversions on the bits of integers, which compilers turn into vectors for every instruction set.  AVX2 and AVX-512
// have instructions for float16, which give the same bits.
//
// source   F. Giesen, "Half to float done quick" and float_to_half_fast3_rtne, for float16 by integers
#include "cpu/microkernels/half.h"

#include <cstring>

#include "cpu/isa/simd.h"

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

constexpr uint32_t kInfinity = 0x7f800000, kMagnitude = 0x7fffffff, kNan = 0x7fff;

inline uint32_t bits_of(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline float float_of(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

// -- bfloat16 ---------------------------------------------------------------------------------------------------------

void widen_bf16(float* out, const uint16_t* in, int64_t count) {
    for (int64_t i = 0; i < count; ++i) out[i] = float_of(static_cast<uint32_t>(in[i]) << 16);
}

void narrow_bf16(uint16_t* out, const float* in, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
        const uint32_t bits = bits_of(in[i]);
        const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        out[i] = static_cast<uint16_t>((bits & kMagnitude) > kInfinity ? kNan : rounded);
    }
}

// -- float16 ----------------------------------------------------------------------------------------------------------

constexpr uint32_t kHalfInfinity = 0x7c00;
constexpr uint32_t kBias = (127 - 15) << 23;      // between the exponents of both formats
constexpr uint32_t kOverflow = (127 + 16) << 23;  // 65536: infinite whatever the fraction
constexpr uint32_t kNormal = (127 - 14) << 23;    // 2^-14, the least number of float16 that is not subnormal
constexpr uint32_t kSubnormal = (127 - 1) << 23;  // 0.5, whose last bit is 2^-24, that of subnormal numbers

#if defined(__AVX512F__)
constexpr __mmask16 kAll = 0xffff;
#endif

inline float widened(uint16_t half) {
    const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fff) << 13;
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
    const uint32_t exponent = magnitude & kHalfInfinity << 13;
    const uint32_t normal = magnitude + kBias + (exponent == kHalfInfinity << 13 ? kBias : 0);
    const uint32_t subnormal = bits_of(float_of(magnitude + kNormal) - float_of(kNormal));
    return float_of((exponent == 0 ? subnormal : normal) | sign);
}

inline uint16_t narrowed(float x) {
    const uint32_t bits = bits_of(x), magnitude = bits & kMagnitude, sign = bits >> 16 & 0x8000;
    const uint32_t normal = (magnitude - kBias + 0xfff + (magnitude >> 13 & 1)) >> 13;  // 65520 and more: infinity
    const uint32_t subnormal = bits_of(float_of(magnitude) + float_of(kSubnormal)) - kSubnormal;  // the sum rounds
    const uint32_t finite = magnitude < kNormal ? subnormal : normal;
    const uint32_t number = sign | (magnitude >= kOverflow ? kHalfInfinity : finite);
    return static_cast<uint16_t>(magnitude > kInfinity ? kNan : number);
}

void widen_fp16(float* out, const uint16_t* in, int64_t count) {
    int64_t i = 0;
#if defined(__AVX512F__)
    for (; i + kLanes <= count; i += kLanes)
        store(out + i, _mm512_maskz_cvtph_ps(kAll, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i))));
#elif defined(__F16C__)
    for (; i + kLanes <= count; i += kLanes)
        store(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i))));
#endif
    for (; i < count; ++i) out[i] = widened(in[i]);
}

void narrow_fp16(uint16_t* out, const float* in, int64_t count) {
    int64_t i = 0;
#if defined(__AVX512F__)
    const __m256i nan = _mm256_set1_epi16(kNan);
    for (; i + kLanes <= count; i += kLanes) {
        const __m512 x = load(in + i);
        const __mmask16 is_number = _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q);
        const __m256i rounded = _mm512_mask_cvtps_ph(nan, is_number, x, _MM_FROUND_TO_NEAREST_INT);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), rounded);
    }
#elif defined(__F16C__)
    const __m128i nan = _mm_set1_epi16(kNan);
    for (; i + kLanes <= count; i += kLanes) {
        const __m256 x = load(in + i);
        const __m128i rounded = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
        const __m256i wide = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));  // 32 bits of ones for a NaN
        const __m128i is_nan = _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), _mm_blendv_epi8(rounded, nan, is_nan));
    }
#endif
    for (; i < count; ++i) out[i] = narrowed(in[i]);
}

}  // namespace

const HalfKernels half_kernels = {widen_bf16, narrow_bf16, widen_fp16, narrow_fp16};

}  // namespace layermem::cpu::LAYERMEM_ISA
