// y = each pair of numbers exchanged, through an asynchronous copy.  Bug: the last copy, which no thread reads, is under way
// when its thread leaves.
#include "pairs.cuh"

template <bool SEEDED>
DEVICE void exchange(const PairArgs& p) {
    LM_SHARED(float, tile, [2][64]);
    const int t = threadIdx.x;
    for (int i = 0; i < 2; ++i) {
        lm::async_copy<4>(&tile[i][t], p.x + t);
        lm::async_commit();
    }
    lm::async_wait<1>();
    lm::block_sync();
    p.y[t] = tile[0][t ^ 1];
    if (!SEEDED) lm::async_wait<0>();
}
PAIR(exchange, 64)
