// y = sums of neighbouring pairs.  Planted: only some lanes reach the shuffle.
#include "pairs.cuh"

template <bool SEEDED_BUGS>
DEVICE void pair_sums(const TwinArgs& p) {
    const int t = threadIdx.x;
    const float mine = p.x[t];
    float sum = mine;
    if (!SEEDED_BUGS || t % 32 < 16) sum = mine + lm::shuffle_xor(mine, 1);
    p.y[t] = sum;
}
TWINS(pair_sums, 64)
