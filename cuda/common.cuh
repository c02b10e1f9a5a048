// Common parts of kernels: vector accesses, division by a number known at plan time, sums of warps and blocks.
//
// Source is compiled with -fmad=false: a product and a sum round separately unless the kernel says fmaf, so that a
// kernel gives the same bits on a GPU and under the emulator, up to the GPU's own exp, log and pow.
#pragma once
#include "primitives.cuh"

namespace lm {

// ---- division ------------------------------------------------------------------------------------------------------

// n / divisor for n < 2^31 as a product.  The host computes multiplier and shift (layermem/backends/cuda/support/launch.py).
// source  Granlund and Montgomery, "Division by invariant integers using multiplication" (1994)
struct Divider {
    unsigned divisor, multiplier, shift;
};

LM_FN unsigned divide(unsigned n, const Divider& by) {
    return by.divisor == 1 ? n : __umulhi(n, by.multiplier) >> by.shift;
}

// A divider made on the device, for n < 2^16 and divisor < 2^16.
LM_FN Divider short_divider(unsigned divisor) { return {divisor, 0xffffffffu / divisor + 1u, 0}; }

// ---- V floats at once -----------------------------------------------------------------------------------------------

// V is 1, or 2 or 4 where the address is aligned to 8 or 16 bytes.
template <int V>
LM_FN void load(float (&to)[V], const float* from) {
    check_aligned(from, V * 4);
    if constexpr (V == 4) {
        const float4 all = *reinterpret_cast<const float4*>(from);
        to[0] = all.x;
        to[1] = all.y;
        to[2] = all.z;
        to[3] = all.w;
    } else if constexpr (V == 2) {
        const float2 both = *reinterpret_cast<const float2*>(from);
        to[0] = both.x;
        to[1] = both.y;
    } else {
        static_assert(V == 1, "one float, two or four");
        to[0] = *from;
    }
}

template <int V>
LM_FN void store(float* to, const float (&from)[V]) {
    check_aligned(to, V * 4);
    if constexpr (V == 4)
        *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
    else if constexpr (V == 2)
        *reinterpret_cast<float2*>(to) = make_float2(from[0], from[1]);
    else
        *to = from[0];
}

// Like store, in shared memory.  If the compiler cannot prove that an address is in shared memory, as in a ring of
// stages, a plain store uses a generic address of two registers.
template <int V>
LM_FN void store_shared(float* to, const float (&from)[V]) {
    check_aligned(to, V * 4);
#if defined(LM_EMULATE)
    store<V>(to, from);
#else
    static_assert(V == 1 || V == 4, "one float or four");
    if constexpr (V == 4)
        asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(to)), "f"(from[0]), "f"(from[1]),
                     "f"(from[2]), "f"(from[3])
                     : "memory");
    else
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(shared_address(to)), "f"(from[0]) : "memory");
#endif
}

// Elements i .. of a longer array, as an array.
template <int N>
LM_FN float (&four(float (&all)[N], int i))[4] {
    return *reinterpret_cast<float (*)[4]>(all + i);
}

// Writes the values, or adds them to the old ones: gradients of several readers are added in one buffer.
template <int V>
LM_FN void put(float* to, float (&values)[V], bool accumulate) {
    if (accumulate) {
        float before[V];
        load<V>(before, to);
#pragma unroll
        for (int i = 0; i < V; ++i) values[i] = before[i] + values[i];
    }
    store<V>(to, values);
}

LM_FN void put(float* to, float value, bool accumulate) { *to = accumulate ? *to + value : value; }

// Returns max(x, 0), but a NaN stays one: fmaxf would hide it.
LM_FN float positive(float x) { return x < 0.0f ? 0.0f : x; }

// ---- sums in a fixed order ------------------------------------------------------------------------------------------

LM_FN float warp_sum(float value) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) value += shuffle_xor(value, distance);
    return value;
}

LM_FN float warp_max(float value) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) value = fmaxf(value, shuffle_xor(value, distance));
    return value;
}

// Returns the sum over a block of up to 1024 threads, in whole warps, to every thread.  `lanes` is shared, [33].
LM_FN float block_sum(float value, float* lanes) {
    const int warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    value = warp_sum(value);
    if (threadIdx.x % WARP == 0) lanes[warp] = value;
    block_sync();
    if (warp == 0) {
        const float total = warp_sum(static_cast<int>(threadIdx.x) < warps ? lanes[threadIdx.x] : 0.0f);
        if (threadIdx.x == 0) lanes[32] = total;
    }
    block_sync();
    return lanes[32];
}

}  // namespace lm
