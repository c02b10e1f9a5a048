// y = sums of neighbouring pairs.  Bug: only some lanes reach the shuffle.
#include "pairs.cuh"

template <bool SEEDED>
DEVICE void pair_sums(const PairArgs& p) {
    const int t = threadIdx.x;
    const float mine = p.x[t];
    float sum = mine;
    if (!SEEDED || t % 32 < 16) sum = mine + lm::shuffle_xor(mine, 1);
    p.y[t] = sum;
}
PAIR(pair_sums, 64)
