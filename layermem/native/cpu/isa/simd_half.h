// Registers of floats from and to 16 bits in memory: Bf16 is the upper half of a float32, Fp16 is IEEE binary16.
//
// Loads widen, stores round to nearest even, and every NaN becomes 0x7fff.  AVX2 and AVX-512 have instructions for Fp16,
// which give the bits of the integer arithmetic that all other instruction sets run.
//
// source   F. Giesen, "Half to float done quick" and float_to_half_fast3_rtne, for float16 by integers
#pragma once
#include "cpu/isa/simd_math.h"

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

struct Bf16 {
    uint16_t bits;
};
struct Fp16 {
    uint16_t bits;
};

// The form of a register in memory: kLanes numbers of 16 bits.
typedef uint16_t Halves __attribute__((vector_size(2 * kLanes)));
typedef uint32_t U __attribute__((vector_size(4 * kLanes)));

constexpr uint32_t kHalfNan = 0x7fff;

inline U widen_bits(Halves h) {
#if defined(__AVX512F__)
    return reinterpret_cast<U>(_mm512_maskz_cvtepu16_epi32(0xFFFF, reinterpret_cast<__m256i>(h)));
#elif defined(__AVX2__)
    return reinterpret_cast<U>(_mm256_cvtepu16_epi32(reinterpret_cast<__m128i>(h)));
#else
    return __builtin_convertvector(h, U);
#endif
}

inline Halves narrow_bits(U u) {
#if defined(__AVX512F__)
    return reinterpret_cast<Halves>(_mm512_maskz_cvtepi32_epi16(0xFFFF, reinterpret_cast<__m512i>(u)));
#elif defined(__AVX2__)
    const __m256i each = reinterpret_cast<__m256i>(u);
    return reinterpret_cast<Halves>(_mm_packus_epi32(_mm256_castsi256_si128(each), _mm256_extracti128_si256(each, 1)));
#else
    return __builtin_convertvector(u, Halves);
#endif
}

inline U select_bits(I condition, U a, U b) {
    const U chosen = reinterpret_cast<U>(condition);
    return (chosen & a) | (~chosen & b);
}

// -- bfloat16 ---------------------------------------------------------------------------------------------------------

inline V widen(Bf16, Halves h) { return reinterpret_cast<V>(widen_bits(h) << 16); }

inline Halves narrow(Bf16, V v) {
    const U bits = reinterpret_cast<U>(v);
    const U rounded = (bits + (0x7fff + (bits >> 16 & 1))) >> 16;
    return narrow_bits(select_bits(v == v, rounded, U{} + kHalfNan));
}

// -- float16 ----------------------------------------------------------------------------------------------------------

#if defined(__AVX512F__)
inline V widen(Fp16, Halves h) { return _mm512_maskz_cvtph_ps(0xFFFF, reinterpret_cast<__m256i>(h)); }

inline Halves narrow(Fp16, V v) {
    const __mmask16 is_number = _mm512_cmp_ps_mask(v, v, _CMP_ORD_Q);
    const __m256i nan = _mm256_set1_epi16(kHalfNan);
    return reinterpret_cast<Halves>(_mm512_mask_cvtps_ph(nan, is_number, v, _MM_FROUND_TO_NEAREST_INT));
}
#elif defined(__F16C__)
inline V widen(Fp16, Halves h) { return _mm256_cvtph_ps(reinterpret_cast<__m128i>(h)); }

inline Halves narrow(Fp16, V v) {
    const __m128i rounded = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
    const __m256i wide = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));  // 32 bits of ones for a NaN
    const __m128i is_nan = _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
    return reinterpret_cast<Halves>(_mm_blendv_epi8(rounded, _mm_set1_epi16(kHalfNan), is_nan));
}
#else
constexpr uint32_t kHalfInfinity = 0x7c00;
constexpr uint32_t kBias = (127 - 15) << 23;      // between the exponents of both formats
constexpr uint32_t kOverflow = (127 + 16) << 23;  // 65536: infinite whatever the fraction
constexpr uint32_t kNormal = (127 - 14) << 23;    // 2^-14, the least number of float16 that is not subnormal
constexpr uint32_t kSubnormal = (127 - 1) << 23;  // 0.5, whose last bit is 2^-24, that of subnormal numbers

inline V float_of(uint32_t bits) { return reinterpret_cast<V>(U{} + bits); }

inline V widen(Fp16, Halves h) {
    const U half = widen_bits(h), magnitude = (half & 0x7fff) << 13, exponent = magnitude & (kHalfInfinity << 13);
    const I infinite = exponent == (kHalfInfinity << 13), tiny = exponent == 0;
    const U normal = magnitude + kBias + select_bits(infinite, U{} + kBias, U{});
    const U subnormal = reinterpret_cast<U>(reinterpret_cast<V>(magnitude + kNormal) - float_of(kNormal));
    return reinterpret_cast<V>(select_bits(tiny, subnormal, normal) | (half & 0x8000) << 16);
}

inline Halves narrow(Fp16, V v) {
    const U bits = reinterpret_cast<U>(v), magnitude = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
    const U normal = (magnitude - kBias + 0xfff + (magnitude >> 13 & 1)) >> 13;  // 65520 and more: infinity
    const U subnormal = reinterpret_cast<U>(reinterpret_cast<V>(magnitude) + float_of(kSubnormal)) - kSubnormal;
    const U finite = select_bits(magnitude < kNormal, subnormal, normal);  // the sum above rounds
    const U number = sign | select_bits(magnitude >= kOverflow, U{} + kHalfInfinity, finite);
    return narrow_bits(select_bits(v == v, number, U{} + kHalfNan));
}
#endif

// -- in memory --------------------------------------------------------------------------------------------------------

template <class T, class N>
LAYERMEM_INLINE V load_halves(const T* p, N n) {
    Halves h{};
#if defined(__AVX512F__)
    if constexpr (!__is_same(N, FullVector))
        return widen(T{}, reinterpret_cast<Halves>(_mm256_maskz_loadu_epi16(tail_mask(n), p)));
#endif
    __builtin_memcpy(&h, p, 2 * static_cast<size_t>(n));
    return widen(T{}, h);
}

template <class T, class N>
LAYERMEM_INLINE void store_halves(T* p, V v, N n) {
    const Halves h = narrow(T{}, v);
#if defined(__AVX512F__)
    if constexpr (!__is_same(N, FullVector))
        return _mm256_mask_storeu_epi16(p, tail_mask(n), reinterpret_cast<__m256i>(h));
#endif
    __builtin_memcpy(p, &h, 2 * static_cast<size_t>(n));
}

template <class N>
LAYERMEM_INLINE V load(const Bf16* p, N n) {
    return load_halves(p, n);
}
template <class N>
LAYERMEM_INLINE V load(const Fp16* p, N n) {
    return load_halves(p, n);
}
template <class N>
LAYERMEM_INLINE void store(Bf16* p, V v, N n) {
    store_halves(p, v, n);
}
template <class N>
LAYERMEM_INLINE void store(Fp16* p, V v, N n) {
    store_halves(p, v, n);
}

}  // namespace
}  // namespace layermem::cpu::LAYERMEM_ISA
