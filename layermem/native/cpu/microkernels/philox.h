// The counter-based generator of random words: word i % 4 of counter i / 4 belongs to element i.
#pragma once
#include "cpu/isa/simd.h"

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011: Parallel random numbers, as easy as 1, 2, 3), kLanes / 2 counters
// side by side.  A counter (c0 .. c3) gives the words of four elements.  Words live in the low halves of 64-bit lanes,
// where a product is 64 bits wide; what is left in the high halves never reaches a low one.
typedef uint64_t W __attribute__((vector_size(4 * kLanes)));
constexpr int kCounters = kLanes / 2;

// The 64-bit products of the low halves.
inline W wide_product(W a, W b) {
#if defined(__AVX512F__)
    return reinterpret_cast<W>(
        _mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
    return reinterpret_cast<W>(_mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#elif defined(__SSE2__)
    return reinterpret_cast<W>(__builtin_ia32_pmuludq128(reinterpret_cast<I>(a), reinterpret_cast<I>(b)));
#else
    return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

// The 2 * kLanes words of counters first .. first + kCounters - 1, in the order of the elements they belong to.
inline void philox(uint32_t* out, uint64_t first, uint64_t step, const uint32_t key[2]) {
    W c0, even, odd, c1{}, c2 = (step & 0xffffffffu) - W{}, c3 = (step >> 32) - W{};
    for (int i = 0; i < kCounters; ++i) {
        c0[i] = first + static_cast<uint64_t>(i);
        even[i] = static_cast<uint64_t>(i / 2 + i % 2 * kCounters);
        odd[i] = even[i] + kCounters / 2;
    }
    const W by0 = uint64_t{0xD2511F53u} - W{}, by2 = uint64_t{0xCD9E8D57u} - W{};
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        const W m0 = wide_product(by0, c0), m1 = wide_product(by2, c2);
        c0 = (m1 >> 32) ^ c1 ^ (uint64_t{k0} - W{});
        c2 = (m0 >> 32) ^ c3 ^ (uint64_t{k1} - W{});
        c1 = m1;
        c3 = m0;
    }
    const W low = (c0 & 0xffffffffu) | (c1 << 32), high = (c2 & 0xffffffffu) | (c3 << 32);
    const W words[2] = {__builtin_shuffle(low, high, even), __builtin_shuffle(low, high, odd)};
    __builtin_memcpy(out, words, sizeof words);
}

}  // namespace
}  // namespace layermem::cpu::LAYERMEM_ISA
