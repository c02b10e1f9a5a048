// y = each pair of numbers exchanged, by threads that have waited at a barrier for copies of others.  Bug: these wait for
// their groups of copies, and what they have started belongs to none: the arrival behind it is under way when they leave.
#include "pairs.cuh"
#include "warpgroup.cuh"

template <bool SEEDED>
DEVICE void exchange(const PairArgs& p) {
    LM_SHARED(float, tile, [64]);
    LM_SHARED(unsigned long long, filled, [1]);
    const int t = threadIdx.x;
    if (t == 0) lm::barrier_init(filled, 64);
    lm::block_sync();
    if (t < 64) {
        lm::async_copy<4>(&tile[t], p.x + t);
        lm::barrier_arrive_behind_copies(filled);
        if (!SEEDED) lm::async_commit();
        lm::async_wait<0>();
    } else {
        lm::barrier_wait(filled, 0);
        p.y[t - 64] = tile[(t - 64) ^ 1];
    }
}
PAIR(exchange, 128)
