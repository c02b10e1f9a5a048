// The same exchange.  Planted: a shuffle between write and read, which brings the lanes together but orders no memory.
#include "pairs.cuh"

template <bool SEEDED_BUGS>
DEVICE void swap_neighbours(const TwinArgs& p) {
    LM_SHARED(float, tile, [64]);
    const int t = threadIdx.x;
    tile[t] = p.x[t];
    if (SEEDED_BUGS)
        lm::shuffle_xor(t, 1);
    else
        lm::warp_sync();
    p.y[t] = tile[t ^ 1];
}
TWINS(swap_neighbours, 64)
