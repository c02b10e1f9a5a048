// y = each stretch of 64 reversed.  Planted: threads read what others may not have written yet.
#include "pairs.cuh"

template <bool SEEDED_BUGS>
DEVICE void reverse(const TwinArgs& p) {
    LM_SHARED(float, tile, [64]);
    const int t = threadIdx.x, first = 64 * blockIdx.x;
    tile[t] = p.x[first + t];
    if (!SEEDED_BUGS) lm::block_sync();
    p.y[first + t] = tile[63 - t];
}
TWINS(reverse, 64)
