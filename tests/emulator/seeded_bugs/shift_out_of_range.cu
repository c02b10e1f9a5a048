// y[t] = 1 where bit t of a 32-bit mask is set, 0 beyond it.  Bug: the mask is shifted by 32 and more.
#include "pairs.cuh"

template <bool SEEDED>
DEVICE void bits(const PairArgs& p) {
    const int t = threadIdx.x;
    const unsigned mask = static_cast<unsigned>(p.n);
    p.y[t] = (SEEDED || t < 32) && (mask >> t & 1u) != 0 ? 1.0f : 0.0f;
}
PAIR(bits, 64)
