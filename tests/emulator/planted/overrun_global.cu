// y = 2 x over n elements, in blocks of 64.  Planted: the last block does not stop at n.
#include "twins.cuh"

template <bool PLANTED>
DEVICE void twice(const TwinArgs& p) {
    const int i = 64 * blockIdx.x + threadIdx.x;
    if (PLANTED || i < p.n) p.y[i] = 2 * p.x[i];
}
TWINS(twice, 64)
