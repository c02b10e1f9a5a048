// Pointwise functions, ReLU and Clip on elements [begin, end); the functions are in pointwise_kinds.h.
//
// The kind is tested once per call: each case instantiates its own loop.  All of them are bound by memory but for
// those with exp, log or pow, which take tens of instructions per register.
//
// Backward kinds take a = dy and b = x or y, whichever pointwise_kinds.h names: it decides which blob stays in memory.
#include "cpu/microkernels/activation.h"

#include "cpu/isa/simd_math.h"
#include "cpu/microkernels/pointwise_kinds.h"

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

// x^e for any x, with the results of std::pow: exact for the exponents that occur most, NaN for a negative x and an e
// that is not an integer.
inline V pow_any_sign(V x, float e) {
    if (e == 1.0f) return x;
    if (e == 2.0f) return x * x;
    if (e == 0.5f) return sqrt(x);
    if (e == 0.0f) return broadcast(1.0f);
    if (e == -1.0f) return 1.0f / x;
    const V size = pow(abs(x), e);
    const V at_zero = broadcast(e > 0 ? 0.0f : __builtin_inff());
    const int64_t whole = static_cast<int64_t>(e);
    const bool integral = static_cast<float>(whole) == e;
    const V below = !integral ? broadcast(__builtin_nanf("")) : whole % 2 ? -size : size;
    return select(x == zero(), at_zero, select(x < zero(), below, size));
}

// The derivative of x sigmoid(alpha x).
inline V swish_slope(V x, V alpha) {
    const V s = sigmoid(alpha * x);
    return s + alpha * x * s * (1.0f - s);
}

// out (+)= f(a, b), where an input that is null reads as 0
template <class F>
void map_elements(const Pointwise& args, int64_t begin, int64_t end, const F& f) {
    for_each_vector(begin, end, [&](int64_t i, auto n) __attribute__((always_inline)) {
        const V v = f(args.a ? load(args.a + i, n) : zero(), args.b ? load(args.b + i, n) : zero());
        store(args.out + i, args.accumulate ? load(args.out + i, n) + v : v, n);
    });
}

// Constants are broadcast once; scalars are tested outside of the loop where that changes the instructions.
void pointwise(const Pointwise& args, int64_t begin, int64_t end) {
    const V alpha = broadcast(args.alpha), beta = broadcast(args.beta), gamma = broadcast(args.gamma);
    const V one = broadcast(1.0f);
    const auto run = [&](const auto& f) { map_elements(args, begin, end, f); };
    switch (args.kind) {
#define LAYERMEM_CASE(name, formula, value) \
    case PointwiseKind::name: return run([&]([[maybe_unused]] V a, [[maybe_unused]] V b) { return value; });
        LAYERMEM_POINTWISE_KINDS(LAYERMEM_CASE)
#undef LAYERMEM_CASE
    }
}

// Sixteen elements at a time on every ISA, so that a mask is written and read in whole bytes; begin is a multiple of
// 16.  The unused bits of the last byte are zeros.
void relu_forward(const Relu& args, int64_t begin, int64_t end) {
    const V slope = broadcast(args.slope), largest_zero = broadcast(args.mask.largest_zero);
    for (int64_t i = begin; i < end; i += 16) {
        uint32_t word = 0;
        for (int j = 0; j < 16; j += kLanes) {
            const int64_t left = end - i - j;
            if (left <= 0) break;
            const V x = load_up_to(args.in + i + j, left);
            const V y = args.slope == 0 ? relu(x) : select(x > zero(), x, slope * x);
            word |= positive_mask(x, largest_zero) << j;
            if (args.out) store_up_to(args.out + i + j, y, left);
        }
        if (args.mask.bits) {
            args.mask.bits[i / 8] = static_cast<uint8_t>(word);
            if (end - i > 8) args.mask.bits[i / 8 + 1] = static_cast<uint8_t>(word >> 8);
        }
    }
}

// dx (+)= dy where the bit is set, slope dy elsewhere
void relu_backward(const Relu& args, int64_t begin, int64_t end) {
    const V slope = broadcast(args.slope);
    for (int64_t i = begin; i < end; i += 16) {
        uint32_t word = args.mask.bits[i / 8];
        if (end - i > 8) word |= static_cast<uint32_t>(args.mask.bits[i / 8 + 1]) << 8;
        for (int j = 0; j < 16; j += kLanes) {
            const int64_t left = end - i - j;
            if (left <= 0) break;
            const V dy = load_up_to(args.in + i + j, left);
            V dx = select(lanes_from_mask(word >> j), dy, args.slope == 0 ? zero() : slope * dy);
            if (args.accumulate) dx += load_up_to(args.out + i + j, left);
            store_up_to(args.out + i + j, dx, left);
        }
    }
}

// Like relu_forward, but a bit is set where lowest <= x <= highest; a NaN stays a NaN.
void clip_forward(const Clip& args, int64_t begin, int64_t end) {
    const V low = broadcast(args.lowest), high = broadcast(args.highest);
    for (int64_t i = begin; i < end; i += 16) {
        uint32_t word = 0;
        for (int j = 0; j < 16; j += kLanes) {
            const int64_t left = end - i - j;
            if (left <= 0) break;
            const V x = load_up_to(args.in + i + j, left);
            const V one = select((x >= low) & (x <= high), broadcast(1.0f), zero());
            word |= positive_mask(left < kLanes ? clear_tail(one, static_cast<int>(left)) : one) << j;
            store_up_to(args.out + i + j, select(x == x, min(max(x, low), high), x), left);
        }
        args.mask[i / 8] = static_cast<uint8_t>(word);
        if (end - i > 8) args.mask[i / 8 + 1] = static_cast<uint8_t>(word >> 8);
    }
}

}  // namespace

const ActivationKernels activation_kernels = {pointwise, relu_forward, relu_backward, clip_forward};

}  // namespace layermem::cpu::LAYERMEM_ISA
