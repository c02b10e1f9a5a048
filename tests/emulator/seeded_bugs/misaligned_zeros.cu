// y = x without its first row of four, and a row of zeros at the end.  Bug: the zeros have the address of row -1 in numbers
// and not in rows, which is not aligned to 16.
#include "pairs.cuh"

template <bool SEEDED>
DEVICE void shift(const PairArgs& p) {
    LM_SHARED(float, tile, [64]);
    const int t = threadIdx.x, first = 4 * t + 4 < p.n ? 4 * t + 4 : -1;
    lm::async_copy<16>(tile + 4 * t, p.x + (SEEDED ? first : max(first, 0)), first >= 0);
    lm::async_commit();
    lm::async_wait<0>();
    for (int j = 4 * t; j < 4 * t + 4; ++j) p.y[j] = tile[j];
}
PAIR(shift, 16)
