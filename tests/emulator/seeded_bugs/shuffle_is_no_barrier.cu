// The same exchange.  Bug: a shuffle between write and read, which brings the lanes together but orders no memory.
#include "pairs.cuh"

template <bool SEEDED>
DEVICE void swap_neighbours(const PairArgs& p) {
    LM_SHARED(float, tile, [64]);
    const int t = threadIdx.x;
    tile[t] = p.x[t];
    if (SEEDED)
        lm::shuffle_xor(t, 1);
    else
        lm::warp_sync();
    p.y[t] = tile[t ^ 1];
}
PAIR(swap_neighbours, 64)
