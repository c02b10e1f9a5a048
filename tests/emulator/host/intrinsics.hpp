// CUDA's device functions for the host: bits, arithmetic, cached loads, integer atomics.
//
// Only what keeps a kernel deterministic is here: there is no atomic on floats.  Fast approximations (__expf and their
// like) are the exact functions, so a test must allow for their error on a GPU by itself.
#pragma once

#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

// ---- bits ---------------------------------------------------------------------------------------------------------

inline unsigned __float_as_uint(float x) {
    unsigned bits;
    memcpy(&bits, &x, 4);
    return bits;
}
inline float __uint_as_float(unsigned bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
inline int __float_as_int(float x) { return static_cast<int>(__float_as_uint(x)); }
inline float __int_as_float(int bits) { return __uint_as_float(static_cast<unsigned>(bits)); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)); }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>((uint64_t{a} * b) >> 32); }
inline int __mulhi(int a, int b) { return static_cast<int>((int64_t{a} * b) >> 32); }
inline unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (int bit = 0; bit < 32; ++bit) reversed |= ((x >> bit) & 1u) << (31 - bit);
    return reversed;
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
    const uint64_t bytes = uint64_t{high} << 32 | low;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) {
        const unsigned choice = selector >> (4 * i);
        unsigned byte = static_cast<unsigned>(bytes >> (8 * (choice & 7))) & 0xffu;
        if (choice & 8) byte = byte & 0x80u ? 0xffu : 0u;
        result |= byte << (8 * i);
    }
    return result;
}

// ---- arithmetic ---------------------------------------------------------------------------------------------------

#define LM_MIN_MAX(T)                                \
    inline T min(T a, T b) { return b < a ? b : a; } \
    inline T max(T a, T b) { return a < b ? b : a; }
LM_MIN_MAX(int)
LM_MIN_MAX(unsigned)
LM_MIN_MAX(long)
LM_MIN_MAX(unsigned long)
LM_MIN_MAX(long long)
LM_MIN_MAX(unsigned long long)
#undef LM_MIN_MAX
inline float min(float a, float b) { return fminf(a, b); }  // like CUDA's: the operand that is a number
inline float max(float a, float b) { return fmaxf(a, b); }

inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
inline float __fdividef(float a, float b) { return a / b; }
inline int __float2int_rn(float x) { return static_cast<int>(nearbyintf(x)); }
inline int __float2int_rz(float x) { return static_cast<int>(x); }
inline int __float2int_rd(float x) { return static_cast<int>(floorf(x)); }
inline int __float2int_ru(float x) { return static_cast<int>(ceilf(x)); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }

// glibc has functions of these names, hence macros
#define rsqrtf(x) (1.0f / sqrtf(x))
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)

// ---- memory -------------------------------------------------------------------------------------------------------

template <class T>
inline T __ldg(const T* p) {
    return *p;
}
template <class T>
inline T __ldcs(const T* p) {
    return *p;
}
template <class T>
inline T __ldcg(const T* p) {
    return *p;
}
template <class T>
inline void __stcs(T* p, T value) {
    *p = value;
}
template <class T>
inline void __stcg(T* p, T value) {
    *p = value;
}
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

#define LM_ATOMICS(T)                                                                                     \
    inline T atomicAdd(T* p, T value) { return __atomic_fetch_add(p, value, __ATOMIC_SEQ_CST); }          \
    inline T atomicAnd(T* p, T value) { return __atomic_fetch_and(p, value, __ATOMIC_SEQ_CST); }          \
    inline T atomicOr(T* p, T value) { return __atomic_fetch_or(p, value, __ATOMIC_SEQ_CST); }            \
    inline T atomicExch(T* p, T value) { return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST); }        \
    inline T atomicCAS(T* p, T expected, T value) {                                                       \
        __atomic_compare_exchange_n(p, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);      \
        return expected;                                                                                  \
    }                                                                                                     \
    inline T atomicMax(T* p, T value) {                                                                   \
        T old = __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                     \
        while (old < value &&                                                                             \
               !__atomic_compare_exchange_n(p, &old, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) { \
        }                                                                                                 \
        return old;                                                                                       \
    }                                                                                                     \
    inline T atomicMin(T* p, T value) {                                                                   \
        T old = __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                     \
        while (value < old &&                                                                             \
               !__atomic_compare_exchange_n(p, &old, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) { \
        }                                                                                                 \
        return old;                                                                                       \
    }
LM_ATOMICS(int)
LM_ATOMICS(unsigned)
LM_ATOMICS(unsigned long long)
#undef LM_ATOMICS
