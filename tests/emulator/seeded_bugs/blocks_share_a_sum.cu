// y[b] += the sum of block b's 64 elements.  Planted: all blocks add to y[0]; one after another, as here, that is
// right.
#include "pairs.cuh"

template <bool SEEDED_BUGS>
DEVICE void sums(const TwinArgs& p) {
    LM_SHARED(float, tile, [64]);
    const int t = threadIdx.x;
    tile[t] = p.x[64 * blockIdx.x + t];
    lm::block_sync();
    if (t != 0) return;
    float sum = 0;
    for (float x : tile) sum += x;
    p.y[SEEDED_BUGS ? 0 : blockIdx.x] += sum;
}
TWINS(sums, 64)
