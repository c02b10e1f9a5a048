// y = sums of neighbouring pairs in a block of 48.  Planted: the half warp at its end asks lanes that do not exist.
#include "pairs.cuh"

template <bool SEEDED_BUGS>
DEVICE void pair_sums(const TwinArgs& p) {
    const int t = threadIdx.x;
    const float mine = p.x[t];
    p.y[t] = mine + lm::shuffle_xor(mine, SEEDED_BUGS ? 16 : 1);
}
TWINS(pair_sums, 64)
