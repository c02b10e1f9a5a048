// One register of floats of the ISA being compiled: V, and the few operations that microkernels are made of.
//
// Included by files of microkernels/ only, which are compiled once per ISA (LAYERMEM_ISA, see isa.h).  Everything has
// internal linkage and nothing of std is instantiated: the linker must never share a function between ISAs.
//
// A tail (fewer than kLanes floats) is loaded with zeros in the unused lanes and goes through the same instructions as
// a full register, so the bits of an element do not depend on its position in an array.
#pragma once
#include <cstddef>
#include <cstdint>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if !defined(LAYERMEM_ISA)
#define LAYERMEM_ISA base
#endif
#define LAYERMEM_INLINE inline __attribute__((always_inline))

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16, kRegisters = 32;
#elif defined(__AVX2__)
constexpr int kLanes = 8, kRegisters = 16;
#elif defined(__aarch64__)
constexpr int kLanes = 4, kRegisters = 32;
#else
constexpr int kLanes = 4, kRegisters = 16;
#endif

// kLanes: floats of a register; kRegisters: vector registers that the ISA has
constexpr int kMaxVectors = kRegisters == 32 ? 4 : 2;  // width of the widest GEMM tile, in registers

typedef float V __attribute__((vector_size(4 * kLanes)));
typedef int32_t I __attribute__((vector_size(4 * kLanes)));  // integers, or a condition: -1 true, 0 false
typedef float UnalignedV __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));

// Any address will do: loads and stores are unaligned.
inline V load(const float* p) { return *reinterpret_cast<const UnalignedV*>(p); }
inline void store(float* p, V v) { *reinterpret_cast<UnalignedV*>(p) = v; }
inline V broadcast(float x) { return x - V{}; }
inline V zero() { return V{}; }

// fma: a * b + c, rounded once where the ISA has it.  load, store with n: the first n lanes, 0 <= n <= kLanes.
#if defined(__AVX512F__)
inline V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
inline __mmask16 tail_mask(int n) { return static_cast<__mmask16>((1u << n) - 1); }
inline V load(const float* p, int n) { return _mm512_maskz_loadu_ps(tail_mask(n), p); }
inline void store(float* p, V v, int n) { _mm512_mask_storeu_ps(p, tail_mask(n), v); }
#elif defined(__AVX2__)
inline V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
inline __m256i tail_mask(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline V load(const float* p, int n) { return _mm256_maskload_ps(p, tail_mask(n)); }
inline void store(float* p, V v, int n) { _mm256_maskstore_ps(p, tail_mask(n), v); }
#else
#if defined(__aarch64__)
inline V fma(V a, V b, V c) { return vfmaq_f32(c, a, b); }
#else
inline V fma(V a, V b, V c) { return a * b + c; }
#endif
inline V load(const float* p, int n) {
    V v{};
    for (int i = 0; i < n; ++i) v[i] = p[i];
    return v;
}
inline void store(float* p, V v, int n) {
    for (int i = 0; i < n; ++i) p[i] = v[i];
}
#endif

// All lanes, or the first n: for n that is not known to be below kLanes.
inline V load_up_to(const float* p, int64_t n) { return n >= kLanes ? load(p) : load(p, static_cast<int>(n)); }
inline void store_up_to(float* p, V v, int64_t n) { n >= kLanes ? store(p, v) : store(p, v, static_cast<int>(n)); }

// The sum of the lanes, always in the same order: the upper half is added to the lower half until one is left.
inline float reduce_add(V v) {
    float lane[kLanes];
    store(lane, v);
    for (int half = kLanes / 2; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
    return lane[0];
}

// The number of lanes in use where it is known to be all of them; loads and stores of it need no mask.
struct FullVector {
    operator int() const { return kLanes; }
};
inline V load(const float* p, FullVector) { return load(p); }
inline void store(float* p, V v, FullVector) { store(p, v); }

// Visits [begin, end) a register at a time: body(i, FullVector{}) for whole registers, body(i, n) for the tail.
template <class Body>
LAYERMEM_INLINE void for_each_vector(int64_t begin, int64_t end, const Body& body) {
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) body(i, FullVector{});
    if (i < end) body(i, static_cast<int>(end - i));
}

// Visits [begin, end) four registers at a time while there are as many, body(i, n, VectorGroup<4>{}), and then one at a
// time, VectorGroup<1>{}.  Loops that go down columns use it to read 4 * kLanes neighbours of every row.
template <int kGroup>
struct VectorGroup {};
template <int kGroup>
constexpr int size_of(VectorGroup<kGroup>) {
    return kGroup;
}
template <class Body>
LAYERMEM_INLINE void for_each_vector_group(int64_t begin, int64_t end, const Body& body) {
    int64_t i = begin;
    for (; i + 4 * kLanes <= end; i += 4 * kLanes) body(i, FullVector{}, VectorGroup<4>{});
    for (; i + kLanes <= end; i += kLanes) body(i, FullVector{}, VectorGroup<1>{});
    if (i < end) body(i, static_cast<int>(end - i), VectorGroup<1>{});
}

inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }
inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }  // a >= 0, b > 0

}  // namespace
}  // namespace layermem::cpu::LAYERMEM_ISA
