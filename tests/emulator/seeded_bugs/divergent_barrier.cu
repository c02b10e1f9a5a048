// y = each stretch of 64 reversed.  Planted: the two halves of the block wait at different barriers.
#include "pairs.cuh"

template <bool SEEDED_BUGS>
DEVICE void reverse(const TwinArgs& p) {
    LM_SHARED(float, tile, [64]);
    const int t = threadIdx.x;
    tile[t] = p.x[t];
    if (SEEDED_BUGS && t < 32)
        lm::block_sync();
    else
        lm::block_sync();
    p.y[t] = tile[63 - t];
}
TWINS(reverse, 64)
