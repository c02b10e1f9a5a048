// y = x without its first element.  Bug: a 16-byte asynchronous copy from an address that is not aligned to 16.
#include "pairs.cuh"

template <bool SEEDED>
DEVICE void tail(const PairArgs& p) {
    LM_SHARED(float, tile, [256]);
    const int i = 4 * threadIdx.x;
    if (SEEDED)
        lm::async_copy<16>(tile + i, p.x + 1 + i);
    else
        for (int j = 0; j < 4; ++j) lm::async_copy<4>(tile + i + j, p.x + 1 + i + j);
    lm::async_commit();
    lm::async_wait<0>();
    for (int j = 0; j < 4; ++j) p.y[i + j] = tile[i + j];
}
PAIR(tail, 64)
