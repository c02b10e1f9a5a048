// y = x, through dynamic shared memory.  Planted: one element more than the launch asked for.
#include "pairs.cuh"

template <bool SEEDED_BUGS>
DEVICE void copy(const TwinArgs& p) {
    LM_DYN_SHARED(float, tile);
    const int t = threadIdx.x, at = t + (SEEDED_BUGS ? 1 : 0);
    tile[at] = p.x[t];
    p.y[t] = tile[at];
}
TWINS(copy, 64)
