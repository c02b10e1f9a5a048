// Conversions between fp32 and the 16-bit formats: parts of blobs are widened before a kernel and rounded after it.
//   x, y [count]: float in and 16 bits out, or the reverse
//   launch   widen*, narrow*: an element per thread, or _v4: 16, in groups of 4: grid ceil(count / 256), or / 4096,
//            block 256
//   traffic  6 bytes per element: bound by memory
//   assumes  count < 2^31; _v4: count is a multiple of 4, floats are aligned to 16 bytes and the others to 8
//   source   layermem/backends/narrow.py
#include "half.cuh"

using namespace lm;

constexpr int THREADS = 256, GROUPS = 4;  // GROUPS: of four elements, whose loads are in flight together

LM_FN unsigned my_element() { return blockIdx.x * static_cast<unsigned>(THREADS) + threadIdx.x; }

// The first element of a group of this thread.
LM_FN unsigned my_group(int g) {
    return 4u * ((blockIdx.x * GROUPS + g) * static_cast<unsigned>(THREADS) + threadIdx.x);
}

// widen_bf16, widen_fp16: y [count] float written, x [count] in 16 bits read.
struct WidenArgs {
    float* y;
    const unsigned short* x;
    int count;
};

template <class Format>
LM_FN void widen_four(const WidenArgs& p) {
    uint2 bits[GROUPS];
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) {
        if (my_group(g) >= static_cast<unsigned>(p.count)) continue;
        check_aligned(p.x + my_group(g), 8);
        bits[g] = *reinterpret_cast<const uint2*>(p.x + my_group(g));
    }
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) {
        if (my_group(g) >= static_cast<unsigned>(p.count)) return;
        const float values[4] = {Format::low(bits[g].x), Format::high(bits[g].x), Format::low(bits[g].y),
                                 Format::high(bits[g].y)};
        store<4>(p.y + my_group(g), values);
    }
}

template <class Format>
LM_FN void widen_one(const WidenArgs& p) {
    const unsigned i = my_element();
    if (i < static_cast<unsigned>(p.count)) p.y[i] = Format::low(p.x[i]);
}

LM_KERNEL(widen_bf16_v4, WidenArgs, p, THREADS) { widen_four<Bf16>(p); }
LM_KERNEL(widen_bf16_v1, WidenArgs, p, THREADS) { widen_one<Bf16>(p); }
LM_KERNEL(widen_fp16_v4, WidenArgs, p, THREADS) { widen_four<Fp16>(p); }
LM_KERNEL(widen_fp16_v1, WidenArgs, p, THREADS) { widen_one<Fp16>(p); }

// narrow_bf16, narrow_fp16: y [count] in 16 bits written, x [count] float read; ties to even, every NaN becomes 0x7fff.
struct NarrowArgs {
    unsigned short* y;
    const float* x;
    int count;
};

template <class Format>
LM_FN void narrow_four(const NarrowArgs& p) {
    float values[GROUPS][4];
#pragma unroll
    for (int g = 0; g < GROUPS; ++g)
        if (my_group(g) < static_cast<unsigned>(p.count)) load<4>(values[g], p.x + my_group(g));
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) {
        if (my_group(g) >= static_cast<unsigned>(p.count)) return;
        check_aligned(p.y + my_group(g), 8);
        uint2 bits;
        bits.x = Format::pack(values[g][0], values[g][1]);
        bits.y = Format::pack(values[g][2], values[g][3]);
        *reinterpret_cast<uint2*>(p.y + my_group(g)) = bits;
    }
}

template <class Format>
LM_FN void narrow_one(const NarrowArgs& p) {
    const unsigned i = my_element();
    if (i < static_cast<unsigned>(p.count)) p.y[i] = Format::round(p.x[i]);
}

LM_KERNEL(narrow_bf16_v4, NarrowArgs, p, THREADS) { narrow_four<Bf16>(p); }
LM_KERNEL(narrow_bf16_v1, NarrowArgs, p, THREADS) { narrow_one<Bf16>(p); }
LM_KERNEL(narrow_fp16_v4, NarrowArgs, p, THREADS) { narrow_four<Fp16>(p); }
LM_KERNEL(narrow_fp16_v1, NarrowArgs, p, THREADS) { narrow_one<Fp16>(p); }
