// y = each run of 64 reversed.  Bug: threads read what others may not have written yet.
#include "pairs.cuh"

template <bool SEEDED>
DEVICE void reverse(const PairArgs& p) {
    LM_SHARED(float, tile, [64]);
    const int t = threadIdx.x, first = 64 * blockIdx.x;
    tile[t] = p.x[first + t];
    if (!SEEDED) lm::block_sync();
    p.y[first + t] = tile[63 - t];
}
PAIR(reverse, 64)
