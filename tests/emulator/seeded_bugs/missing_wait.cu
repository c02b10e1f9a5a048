// y = each run of 64 reversed, through an asynchronous copy.  Bug: nothing waits for it before it is read.
#include "pairs.cuh"

template <bool SEEDED>
DEVICE void reverse(const PairArgs& p) {
    LM_SHARED(float, tile, [64]);
    const int t = threadIdx.x, first = 64 * blockIdx.x;
    lm::async_copy<4>(&tile[t], p.x + first + t);
    lm::async_commit();
    if (!SEEDED) lm::async_wait<0>();
    lm::block_sync();
    p.y[first + t] = tile[63 - t];
    lm::async_wait<0>();
}
PAIR(reverse, 64)
