// y = neighbouring lanes exchanged through shared memory.  Planted: nothing orders the lanes of a warp.
#include "pairs.cuh"

template <bool SEEDED_BUGS>
DEVICE void swap_neighbours(const TwinArgs& p) {
    LM_SHARED(float, tile, [64]);
    const int t = threadIdx.x;
    tile[t] = p.x[t];
    if (!SEEDED_BUGS) lm::warp_sync();
    p.y[t] = tile[t ^ 1];
}
TWINS(swap_neighbours, 64)
