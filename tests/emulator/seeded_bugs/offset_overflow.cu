// y = x, found through rows 2^30 apart.  Bug: the offset of a row is computed in 32 bits.
#include "pairs.cuh"

template <bool SEEDED>
DEVICE void copy(const PairArgs& p) {
    const int row = threadIdx.x, pitch = 1 << 30;
    const long long at = SEEDED ? row * pitch : static_cast<long long>(row) * pitch;
    p.y[row] = p.x[at / pitch];
}
PAIR(copy, 64)
