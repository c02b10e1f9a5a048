// y = x over n elements, 16 bytes at a time and asynchronously.  Bug: copies are not cut off at n.
#include "pairs.cuh"

template <bool SEEDED>
DEVICE void copy(const PairArgs& p) {
    LM_SHARED(float, tile, [256]);
    const int i = 4 * threadIdx.x;
    lm::async_copy<16>(tile + i, p.x + i, SEEDED || i < p.n);
    lm::async_commit();
    lm::async_wait<0>();
    for (int j = i; j < i + 4 && j < p.n; ++j) p.y[j] = tile[j];
}
PAIR(copy, 64)
