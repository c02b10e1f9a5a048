// y[b] += the sum of block b's 64 elements.  Bug: all blocks add to y[0]; one after another, as here, that is
// right.
#include "pairs.cuh"

template <bool SEEDED>
DEVICE void sums(const PairArgs& p) {
    LM_SHARED(float, tile, [64]);
    const int t = threadIdx.x;
    tile[t] = p.x[64 * blockIdx.x + t];
    lm::block_sync();
    if (t != 0) return;
    float sum = 0;
    for (float x : tile) sum += x;
    p.y[SEEDED ? 0 : blockIdx.x] += sum;
}
PAIR(sums, 64)
