// Every file here holds one kernel twice: `wrong` has a bug seeded in it, `right` has not.
#pragma once

#include "primitives.cuh"

struct PairArgs {
    float* y;
    const float* x;
    int n;
};

#define PAIR(kernel, threads)                                   \
    LM_KERNEL(right, PairArgs, p, threads) { kernel<false>(p); } \
    LM_KERNEL(wrong, PairArgs, p, threads) { kernel<true>(p); }

#define DEVICE static __device__ __forceinline__
