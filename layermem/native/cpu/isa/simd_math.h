// exp, log and friends on a register: polynomials after Cephes (S. Moshier, single precision), within about 2 units in
// the last place.  Every operation is lane by lane, so the result of a lane does not depend on its neighbours.
#pragma once
#include "cpu/isa/simd.h"

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

inline I as_int(V v) { return reinterpret_cast<I>(v); }
inline V as_float(I i) { return reinterpret_cast<V>(i); }
inline I broadcast_int(int32_t x) { return x - I{}; }
inline V select(I where, V yes, V no) { return where ? yes : no; }

// a > b ? a : b and a < b ? a : b, which is what x86's max and min compute: b where one is NaN
#if defined(__AVX512F__)
inline V max(V a, V b) { return _mm512_maskz_max_ps(0xffff, a, b); }  // the unmasked form warns under gcc 12
inline V min(V a, V b) { return _mm512_maskz_min_ps(0xffff, a, b); }
#elif defined(__AVX2__)
inline V max(V a, V b) { return _mm256_max_ps(a, b); }
inline V min(V a, V b) { return _mm256_min_ps(a, b); }
#elif defined(__SSE2__)
inline V max(V a, V b) { return __builtin_ia32_maxps(a, b); }
inline V min(V a, V b) { return __builtin_ia32_minps(a, b); }
#else
inline V max(V a, V b) { return select(a > b, a, b); }
inline V min(V a, V b) { return select(a < b, a, b); }
#endif
inline V abs(V v) { return as_float(as_int(v) & 0x7fffffff); }
inline V copysign(V size, V sign) {
    return as_float(as_int(size) | (as_int(sign) & static_cast<int32_t>(0x80000000u)));
}

// max(v, 0), where NaN stays NaN
inline V relu(V v) { return select(v > zero(), v, select(v == v, zero(), v)); }

inline V sqrt(V v) {
#if defined(__AVX512F__)
    return _mm512_maskz_sqrt_ps(0xffff, v);  // as above
#elif defined(__AVX2__)
    return _mm256_sqrt_ps(v);
#elif defined(__aarch64__)
    return vsqrtq_f32(v);
#elif defined(__SSE2__)
    return __builtin_ia32_sqrtps(v);
#else
    for (int i = 0; i < kLanes; ++i) v[i] = __builtin_sqrtf(v[i]);
    return v;
#endif
}

// x = n ln 2 + r, |r| <= ln 2 / 2:  exp(x) = 2^n (1 + tail),  tail = exp(r) - 1.  2^n is in two factors, so that the
// ends of the range come out right.
struct Powers {
    V tail, low, high;
};
inline Powers powers(V x) {
    x = min(max(x, broadcast(-104.0f)), broadcast(89.0f));
    const V magic = broadcast(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer, kept in the low bits
    const V shifted = fma(x, broadcast(1.44269504f), magic);
    const V n = shifted - magic;
    const V r = fma(n, broadcast(2.12194440e-4f), fma(n, broadcast(-0.693359375f), x));
    V p = broadcast(1.9875691500e-4f);
    p = fma(p, r, broadcast(1.3981999507e-3f));
    p = fma(p, r, broadcast(8.3334519073e-3f));
    p = fma(p, r, broadcast(4.1665795894e-2f));
    p = fma(p, r, broadcast(1.6666665459e-1f));
    p = fma(p, r, broadcast(5.0000001201e-1f));
    const I power = as_int(shifted) - as_int(magic), half = power >> 1;
    return {fma(p, r * r, r), as_float((half + 127) << 23), as_float((power - half + 127) << 23)};
}

inline V exp(V x) {
    const Powers p = powers(x);
    return select(x == x, (p.tail + 1.0f) * p.low * p.high, x);
}

inline V expm1(V x) {
    const Powers p = powers(x);
    const V whole = p.low * p.high;
    return select(x == x, fma(p.tail, whole, whole - 1.0f), x);
}

// log(x) = e ln 2 + log(m), m in [sqrt 1/2, sqrt 2).  -inf at 0, NaN below; denormals count as the least normal.
inline V log(V x) {
    const V least = broadcast(1.17549435e-38f);
    const V v = max(x, least);
    const I exponent = ((as_int(v) >> 23) & 0xff) - 126;
    V m = as_float((as_int(v) & 0x007fffff) | 0x3f000000);  // [1/2, 1)
    const I low = m < broadcast(0.707106781f);
    const V e = __builtin_convertvector(exponent + low, V);  // a true comparison is -1
    m = select(low, m + m, m) - 1.0f;
    const V z = m * m;
    V p = broadcast(7.0376836292e-2f);
    p = fma(p, m, broadcast(-1.1514610310e-1f));
    p = fma(p, m, broadcast(1.1676998740e-1f));
    p = fma(p, m, broadcast(-1.2420140846e-1f));
    p = fma(p, m, broadcast(1.4249322787e-1f));
    p = fma(p, m, broadcast(-1.6668057665e-1f));
    p = fma(p, m, broadcast(2.0000714765e-1f));
    p = fma(p, m, broadcast(-2.4999993993e-1f));
    p = fma(p, m, broadcast(3.3333331174e-1f));
    p = p * m * z;
    p = fma(e, broadcast(-2.12194440e-4f), p);
    p = fma(z, broadcast(-0.5f), p);
    p = fma(e, broadcast(0.693359375f), m + p);
    const V infinite = broadcast(__builtin_inff());
    p = select(x < zero(), broadcast(__builtin_nanf("")), p);
    p = select(x == zero(), -infinite, p);
    return select(x == infinite, x, select(x == x, p, x));
}

// log(1 + x) for x >= 0, right also where 1 + x rounds
inline V log1p(V x) {
    const V u = x + 1.0f;
    return log(u) + (x - (u - 1.0f)) / u;
}

// x^e for x > 0; the exponents that LRN uses most go by square roots
inline V pow(V x, float e) {
    if (e == -0.75f) {
        const V r = sqrt(x);
        return 1.0f / (r * sqrt(r));
    }
    if (e == -1.75f) {
        const V r = sqrt(x);
        return 1.0f / (r * sqrt(r) * x);
    }
    if (e == -0.5f) return 1.0f / sqrt(x);
    return exp(log(x) * e);
}

inline V sigmoid(V x) { return 1.0f / (1.0f + exp(-x)); }

inline V tanh(V x) {
    const V size = abs(x), z = x * x;
    V p = broadcast(-5.70498872745e-3f);
    p = fma(p, z, broadcast(2.06390887954e-2f));
    p = fma(p, z, broadcast(-5.37397155531e-2f));
    p = fma(p, z, broadcast(1.33314422036e-1f));
    p = fma(p, z, broadcast(-3.33332819422e-1f));
    const V near = fma(p * z, x, x);
    const V far = 1.0f - 2.0f / (exp(size + size) + 1.0f);
    return select(size < broadcast(0.625f), near, copysign(far, x));
}

inline float reduce_max(V v) {
    float lane[kLanes];
    store(lane, v);
    float most = lane[0];
    for (int i = 1; i < kLanes; ++i) most = lane[i] > most ? lane[i] : most;
    return most;
}

// Bit i of the result: lane i is above that of `least`.
inline uint32_t positive_mask(V v, V least = zero()) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask(v, least, _CMP_GT_OQ);
#elif defined(__AVX2__)
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(v, least, _CMP_GT_OQ)));
#else
    const I above = v > least;
    uint32_t out = 0;
    for (int i = 0; i < kLanes; ++i) out |= (static_cast<uint32_t>(above[i]) & 1u) << i;
    return out;
#endif
}

// -1 in the lanes whose bit is set
inline I lanes_from_mask(uint32_t word) {
    I each;
    for (int i = 0; i < kLanes; ++i) each[i] = 1 << i;
    return (broadcast_int(static_cast<int32_t>(word)) & each) != 0;
}

// kLanes bytes as numbers and back.  (GCC 12 takes __builtin_convertvector apart lane by lane where a width has no
// name.)
typedef uint8_t Bytes __attribute__((vector_size(kLanes)));
inline I bytes_to_ints(Bytes b) {
#if defined(__AVX512F__)
    return reinterpret_cast<I>(_mm512_maskz_cvtepu8_epi32(0xFFFF, reinterpret_cast<__m128i>(b)));
#elif defined(__AVX2__)
    int64_t word;
    __builtin_memcpy(&word, &b, sizeof word);
    return reinterpret_cast<I>(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(word)));
#else
    return __builtin_convertvector(b, I);
#endif
}
inline Bytes ints_to_bytes(I v) {
#if defined(__AVX512F__)
    return reinterpret_cast<Bytes>(_mm512_maskz_cvtepi32_epi8(0xFFFF, reinterpret_cast<__m512i>(v)));
#elif defined(__AVX2__)
    const __m256i each = reinterpret_cast<__m256i>(v);
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(each), _mm256_extracti128_si256(each, 1));
    const int64_t word = _mm_cvtsi128_si64(_mm_packus_epi16(words, words));  // of numbers from 0 to 255
    Bytes b;
    __builtin_memcpy(&b, &word, sizeof b);
    return b;
#else
    return __builtin_convertvector(v, Bytes);
#endif
}
template <class N>
inline I load_bytes(const uint8_t* p, N n) {
    Bytes b{};
    __builtin_memcpy(&b, p, static_cast<size_t>(n));
    return bytes_to_ints(b);
}
template <class N>
inline void store_bytes(uint8_t* p, I v, N n) {
    const Bytes b = ints_to_bytes(v);
    __builtin_memcpy(p, &b, static_cast<size_t>(n));
}

// `rest` in the lanes from n on, for sums and maxima across lanes.
inline V fill_tail(V v, FullVector, float) { return v; }
inline V fill_tail(V v, int n, float rest) { return select(lanes_from_mask((1u << n) - 1), v, broadcast(rest)); }
template <class N>
inline V clear_tail(V v, N n) {
    return fill_tail(v, n, 0.0f);
}

}  // namespace
}  // namespace layermem::cpu::LAYERMEM_ISA
