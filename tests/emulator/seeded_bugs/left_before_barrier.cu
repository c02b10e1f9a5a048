// y = the first n of x, reversed.  Bug: threads beyond n return, while the others wait for them.
#include "pairs.cuh"

template <bool SEEDED>
DEVICE void reverse(const PairArgs& p) {
    LM_SHARED(float, tile, [64]);
    const int t = threadIdx.x;
    if (SEEDED && t >= p.n) return;
    if (t < p.n) tile[t] = p.x[t];
    lm::block_sync();
    if (t < p.n) p.y[t] = tile[p.n - 1 - t];
}
PAIR(reverse, 64)
