// y = x, found through rows 2^30 apart.  Planted: the offset of a row is computed in 32 bits.
#include "pairs.cuh"

template <bool SEEDED_BUGS>
DEVICE void copy(const TwinArgs& p) {
    const int row = threadIdx.x, pitch = 1 << 30;
    const long long at = SEEDED_BUGS ? row * pitch : static_cast<long long>(row) * pitch;
    p.y[row] = p.x[at / pitch];
}
TWINS(copy, 64)
