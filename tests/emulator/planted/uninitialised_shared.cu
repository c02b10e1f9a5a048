// y = x shifted right by one, zero first.  Planted: the zero is never written; shared memory does not start as zero.
#include "twins.cuh"

template <bool PLANTED>
DEVICE void shift(const TwinArgs& p) {
    LM_SHARED(float, tile, [65]);
    const int t = threadIdx.x;
    tile[t + 1] = p.x[t];
    if (!PLANTED && t == 0) tile[0] = 0;
    lm::block_sync();
    p.y[t] = tile[t];
}
TWINS(shift, 64)
