// y = neighbouring lanes exchanged through shared memory.  Bug: nothing orders the lanes of a warp.
#include "pairs.cuh"

template <bool SEEDED>
DEVICE void swap_neighbours(const PairArgs& p) {
    LM_SHARED(float, tile, [64]);
    const int t = threadIdx.x;
    tile[t] = p.x[t];
    if (!SEEDED) lm::warp_sync();
    p.y[t] = tile[t ^ 1];
}
PAIR(swap_neighbours, 64)
