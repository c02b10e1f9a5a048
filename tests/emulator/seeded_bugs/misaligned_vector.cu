// y = x without its first element, four at a time.  Bug: float4 loads from an address that is not aligned to 16.
#include "pairs.cuh"

template <bool SEEDED>
DEVICE void tail(const PairArgs& p) {
    const float* x = p.x + 1 + 4 * threadIdx.x;
    float* y = p.y + 4 * threadIdx.x;
    if (SEEDED)
        *reinterpret_cast<float4*>(y) = *reinterpret_cast<const float4*>(x);
    else
        *reinterpret_cast<float4*>(y) = make_float4(x[0], x[1], x[2], x[3]);
}
PAIR(tail, 64)
