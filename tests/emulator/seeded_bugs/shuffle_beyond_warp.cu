// y = sums of neighbouring pairs in a block of 48.  Bug: the half warp at its end reads lanes that do not exist.
#include "pairs.cuh"

template <bool SEEDED>
DEVICE void pair_sums(const PairArgs& p) {
    const int t = threadIdx.x;
    const float mine = p.x[t];
    p.y[t] = mine + lm::shuffle_xor(mine, SEEDED ? 16 : 1);
}
PAIR(pair_sums, 64)
