// y = 2 x over n elements, in blocks of 64.  Planted: the last block does not stop at n.
#include "pairs.cuh"

template <bool SEEDED_BUGS>
DEVICE void twice(const TwinArgs& p) {
    const int i = 64 * blockIdx.x + threadIdx.x;
    if (SEEDED_BUGS || i < p.n) p.y[i] = 2 * p.x[i];
}
TWINS(twice, 64)
