// y[t] = the sum of x[64 i + 63 - t] over i, with two tiles in flight.  Bug: the wait lets one group too many fly.
#include "pairs.cuh"

template <bool SEEDED>
DEVICE void pipeline(const PairArgs& p) {
    LM_SHARED(float, tile, [3][64]);
    const int t = threadIdx.x, steps = p.n / 64;
    const auto load = [&](int i) {
        if (i < steps) lm::async_copy<4>(&tile[i % 3][t], p.x + 64 * i + t);
        lm::async_commit();
    };
    float sum = 0;
    load(0);
    load(1);
    for (int i = 0; i < steps; ++i) {
        lm::async_wait<SEEDED ? 2 : 1>();
        lm::block_sync();
        load(i + 2);
        sum += tile[i % 3][63 - t];
    }
    lm::async_wait<0>();
    p.y[t] = sum;
}
PAIR(pipeline, 64)
