// y = each run of 64 reversed.  Bug: the two halves of the block wait at different barriers.
#include "pairs.cuh"

template <bool SEEDED>
DEVICE void reverse(const PairArgs& p) {
    LM_SHARED(float, tile, [64]);
    const int t = threadIdx.x;
    tile[t] = p.x[t];
    if (SEEDED && t < 32)
        lm::block_sync();
    else
        lm::block_sync();
    p.y[t] = tile[63 - t];
}
PAIR(reverse, 64)
