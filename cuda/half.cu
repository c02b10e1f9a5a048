// Between fp32 and bfloat16: parts of blobs are widened before a kernel and rounded behind it.
//   launch   V elements per thread: grid ceil(count / (256 V)), block 256
//   traffic  6 bytes per element: bound by memory
//   assumes  count < 2^31; _v4: count is a multiple of 4, floats are aligned to 16 bytes and the others to 8
//   source   layermem/backends/narrow.py
#include "common.cuh"

using namespace lm;

constexpr int THREADS = 256;

LM_FN unsigned my_element() { return blockIdx.x * static_cast<unsigned>(THREADS) + threadIdx.x; }

// widen_bf16: y [count] float written, x [count] bfloat16 read.
struct WidenArgs {
    float* y;
    const unsigned short* x;
    int count;
};

LM_KERNEL(widen_bf16_v4, WidenArgs, p, THREADS) {
    const unsigned first = 4u * my_element();
    if (first >= static_cast<unsigned>(p.count)) return;
    check_aligned(p.x + first, 8);
    const uint2 bits = *reinterpret_cast<const uint2*>(p.x + first);
    const float values[4] = {bf16_low(bits.x), bf16_high(bits.x), bf16_low(bits.y), bf16_high(bits.y)};
    store<4>(p.y + first, values);
}

LM_KERNEL(widen_bf16_v1, WidenArgs, p, THREADS) {
    const unsigned i = my_element();
    if (i < static_cast<unsigned>(p.count)) p.y[i] = bf16_low(p.x[i]);
}

// narrow_bf16: y [count] bfloat16 written, x [count] float read; ties to even, and every NaN becomes 0x7fff.
struct NarrowArgs {
    unsigned short* y;
    const float* x;
    int count;
};

LM_KERNEL(narrow_bf16_v4, NarrowArgs, p, THREADS) {
    const unsigned first = 4u * my_element();
    if (first >= static_cast<unsigned>(p.count)) return;
    float values[4];
    load<4>(values, p.x + first);
    check_aligned(p.y + first, 8);
    uint2 bits;
    bits.x = bf16_pack(values[0], values[1]);
    bits.y = bf16_pack(values[2], values[3]);
    *reinterpret_cast<uint2*>(p.y + first) = bits;
}

LM_KERNEL(narrow_bf16_v1, NarrowArgs, p, THREADS) {
    const unsigned i = my_element();
    if (i < static_cast<unsigned>(p.count)) p.y[i] = bf16_round(p.x[i]);
}
