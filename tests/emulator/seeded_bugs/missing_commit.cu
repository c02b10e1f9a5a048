// The same.  Bug: the copy belongs to no group, so the wait does not mean it.
#include "pairs.cuh"

template <bool SEEDED>
DEVICE void reverse(const PairArgs& p) {
    LM_SHARED(float, tile, [64]);
    const int t = threadIdx.x, first = 64 * blockIdx.x;
    lm::async_copy<4>(&tile[t], p.x + first + t);
    if (!SEEDED) lm::async_commit();
    lm::async_wait<0>();
    lm::block_sync();
    p.y[first + t] = tile[63 - t];
    lm::async_commit();
    lm::async_wait<0>();
}
PAIR(reverse, 64)
