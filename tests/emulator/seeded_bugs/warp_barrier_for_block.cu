// y[t] = the sum of x over t's eight neighbours and over those of t ^ 32.  Bug: a warp's barrier where the block's
// is needed; many lanes of the right warp have read an element before the wrong one does.
#include "pairs.cuh"

template <bool SEEDED>
DEVICE void sums(const PairArgs& p) {
    LM_SHARED(float, tile, [64]);
    const int t = threadIdx.x;
    tile[t] = p.x[t];
    if (SEEDED)
        lm::warp_sync();
    else
        lm::block_sync();
    float sum = 0;
    for (int i = 0; i < 8; ++i) sum += tile[(t & ~7) + i];
    for (int i = 0; i < 8; ++i) sum += tile[((t ^ 32) & ~7) + i];
    p.y[t] = sum;
}
PAIR(sums, 64)
