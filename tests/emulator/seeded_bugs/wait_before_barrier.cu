// The same.  Bug: each thread waits for its own copy after the barrier, so others' may be missing.
#include "pairs.cuh"

template <bool SEEDED>
DEVICE void reverse(const PairArgs& p) {
    LM_SHARED(float, tile, [64]);
    const int t = threadIdx.x, first = 64 * blockIdx.x;
    lm::async_copy<4>(&tile[t], p.x + first + t);
    lm::async_commit();
    if (SEEDED) lm::block_sync();
    lm::async_wait<0>();
    if (!SEEDED) lm::block_sync();
    p.y[first + t] = tile[63 - t];
}
PAIR(reverse, 64)
