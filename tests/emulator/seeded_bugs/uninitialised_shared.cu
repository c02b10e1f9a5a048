// y = x shifted right by one, zero first.  Bug: the zero is never written; shared memory does not start as zero.
#include "pairs.cuh"

template <bool SEEDED>
DEVICE void shift(const PairArgs& p) {
    LM_SHARED(float, tile, [65]);
    const int t = threadIdx.x;
    tile[t + 1] = p.x[t];
    if (!SEEDED && t == 0) tile[0] = 0;
    lm::block_sync();
    p.y[t] = tile[t];
}
PAIR(shift, 64)
