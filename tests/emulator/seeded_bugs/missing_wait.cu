// y = each stretch of 64 reversed, through an asynchronous copy.  Planted: nobody waits for it.
#include "pairs.cuh"

template <bool SEEDED_BUGS>
DEVICE void reverse(const TwinArgs& p) {
    LM_SHARED(float, tile, [64]);
    const int t = threadIdx.x, first = 64 * blockIdx.x;
    lm::async_copy<4>(&tile[t], p.x + first + t);
    lm::async_commit();
    if (!SEEDED_BUGS) lm::async_wait<0>();
    lm::block_sync();
    p.y[first + t] = tile[63 - t];
}
TWINS(reverse, 64)
