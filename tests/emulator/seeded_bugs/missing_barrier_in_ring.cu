// y[t] = the sum of x[64 i + (t ^ 32)] over i, through two asynchronously filled tiles.  Bug: no barrier at the end
// of a turn, so the next turn's copy may land on a tile that the other warp still reads.
#include "pairs.cuh"

template <bool SEEDED>
DEVICE void ring(const PairArgs& p) {
    LM_SHARED(float, tile, [2][64]);
    const int t = threadIdx.x, steps = p.n / 64;
    const auto load = [&](int i) {
        if (i < steps) lm::async_copy<4>(&tile[i % 2][t], p.x + 64 * i + t);
        lm::async_commit();
    };
    float sum = 0;
    load(0);
    for (int i = 0; i < steps; ++i) {
        load(i + 1);
        lm::async_wait<1>();
        lm::block_sync();
        sum += tile[i % 2][t ^ 32];
        if (!SEEDED) lm::block_sync();
    }
    p.y[t] = sum;
}
PAIR(ring, 64)
