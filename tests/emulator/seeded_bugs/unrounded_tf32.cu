// y [16,8] = x [16,8] times x's first eight rows transposed, by one mma.  Bug: operands are cut off, not rounded.
#include "pairs.cuh"

template <bool SEEDED>
DEVICE void product(const PairArgs& p) {
    const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    const auto operand = [](float x) { return SEEDED ? __float_as_uint(x) : lm::tf32_round(x); };
    unsigned a[4], b[2];
    for (int i = 0; i < 4; ++i) a[i] = operand(p.x[(g + i % 2 * 8) * 8 + t + i / 2 * 4]);
    for (int i = 0; i < 2; ++i) b[i] = operand(p.x[g * 8 + t + 4 * i]);
    float d[4] = {};
    lm::mma_tf32(d, a, b);
    for (int i = 0; i < 4; ++i) p.y[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
}
PAIR(product, 32)
