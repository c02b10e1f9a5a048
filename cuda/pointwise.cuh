// Kernels whose element i of the output needs only element i of the inputs, 16 bytes at a time.
//
//   launch   grid ceil(count / (256 x 4 GROUPS)), block 256; buffers that are not aligned to four elements, as slices
//            of a blob may be, are read and written element by element
//   overlay  all inputs of a thread are read before it writes, so the output may lie on any input
#pragma once
#include "element.cuh"

namespace lm {

constexpr int POINTWISE_THREADS = 256;

// Returns whether four elements can be moved at once.
template <class T>
LM_FN bool is_aligned(const T* address) {
    return (reinterpret_cast<unsigned long long>(address) & (4 * sizeof(T) - 1)) == 0;
}

// Returns four elements from `at` on; elements beyond `total` are zero.  Below `quads` they are moved at once.
template <class T>
LM_FN void load_quad(float (&to)[4], const T* x, unsigned at, unsigned quads, unsigned total) {
    if (at + 4 <= quads)
        load<4>(to, x + at);
    else
#pragma unroll
        for (int e = 0; e < 4; ++e) to[e] = at + e < total ? widened(x[at + e]) : 0.0f;
}

// y[i] (+)= f(values of all inputs at i, i), for i in [0, count).  GROUPS of four elements per thread and input are in
// flight, and of y if it is accumulated.
template <int INPUTS, int GROUPS, class T, class F>
LM_FN void pointwise(T* y, const T* const (&x)[INPUTS], int count, bool accumulate, F f) {
    float in[GROUPS][INPUTS][4], before[GROUPS][4];
    const unsigned first = 4u * (blockIdx.x * (POINTWISE_THREADS * GROUPS) + threadIdx.x),
                   total = static_cast<unsigned>(count);
    bool aligned = is_aligned(y);
#pragma unroll
    for (int k = 0; k < INPUTS; ++k) aligned = aligned && is_aligned(x[k]);
    const unsigned quads = aligned ? total : 0;  // elements that are moved four at a time
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) {
        const unsigned at = first + 4u * POINTWISE_THREADS * g;
#pragma unroll
        for (int k = 0; k < INPUTS; ++k) load_quad(in[g][k], x[k], at, quads, total);
        if (accumulate) load_quad(before[g], y, at, quads, total);
    }
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) {
        const unsigned at = first + 4u * POINTWISE_THREADS * g;
        float out[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            float one[INPUTS];
#pragma unroll
            for (int k = 0; k < INPUTS; ++k) one[k] = in[g][k][e];
            out[e] = f(one, at + e);
            if (accumulate) out[e] = before[g][e] + out[e];
        }
        if (at + 4 <= quads)
            store<4>(y + at, out);
        else
#pragma unroll
            for (int e = 0; e < 4; ++e)
                if (at + e < total) store_one(y + at + e, out[e]);
    }
}

// ---- bits -----------------------------------------------------------------------------------------------------------
//
// A mask holds one bit per element in the order of memory, element 8 b + i in bit i of byte b.  A thread takes eight
// elements and their byte: grid ceil(count / 2048), block 256.
//
// A bit of a ReLU's mask is set where y is positive after rounding to its element type.  In 16 bits the smallest
// numbers become zero, so a kernel that computes y compares it with largest_zero, the largest of these (0 in fp32),
// also if its own y is in fp32 and is rounded later.

LM_FN unsigned first_of_eight() { return 8u * (blockIdx.x * POINTWISE_THREADS + threadIdx.x); }

template <class T>
LM_FN void load_eight(float (&to)[8], const T* x, unsigned at, unsigned count) {
    if (at + 8 <= count && is_aligned(x)) {
        load<4>(four(to, 0), x + at);
        load<4>(four(to, 4), x + at + 4);
    } else {
#pragma unroll
        for (int e = 0; e < 8; ++e) to[e] = at + e < count ? widened(x[at + e]) : 0.0f;
    }
}

template <class T>
LM_FN void put_eight(T* y, float (&values)[8], unsigned at, unsigned count, bool accumulate) {
    if (at + 8 <= count && is_aligned(y)) {
        put<4>(y + at, four(values, 0), accumulate);
        put<4>(y + at + 4, four(values, 4), accumulate);
    } else {
#pragma unroll
        for (int e = 0; e < 8; ++e)
            if (at + e < count) put(y + at + e, values[e], accumulate);
    }
}

}  // namespace lm
