// y [16,8] = x [16,8] times the upper triangle of ones [8,8], by one mma.  Bug: registers a1 and a2 exchanged.
#include "pairs.cuh"

template <bool SEEDED>
DEVICE void product(const PairArgs& p) {
    const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    unsigned a[4];
    for (int i = 0; i < 4; ++i) {
        const int down = SEEDED ? i / 2 : i % 2, right = SEEDED ? i % 2 : i / 2;
        a[i] = lm::tf32_round(p.x[(g + 8 * down) * 8 + t + 4 * right]);
    }
    const unsigned b[2] = {lm::tf32_round(t <= g ? 1.0f : 0.0f), lm::tf32_round(t + 4 <= g ? 1.0f : 0.0f)};
    float d[4] = {};
    lm::mma_tf32(d, a, b);
    for (int i = 0; i < 4; ++i) p.y[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
}
PAIR(product, 32)
