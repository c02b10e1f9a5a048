// y = x without its first element, four at a time.  Planted: float4 loads from an address that is not aligned to 16.
#include "pairs.cuh"

template <bool SEEDED_BUGS>
DEVICE void tail(const TwinArgs& p) {
    const float* x = p.x + 1 + 4 * threadIdx.x;
    float* y = p.y + 4 * threadIdx.x;
    if (SEEDED_BUGS)
        *reinterpret_cast<float4*>(y) = *reinterpret_cast<const float4*>(x);
    else
        *reinterpret_cast<float4*>(y) = make_float4(x[0], x[1], x[2], x[3]);
}
TWINS(tail, 64)
