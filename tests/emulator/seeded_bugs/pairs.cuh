// Every file here holds one kernel twice: `wrong` has a bug seeded in it, `right` has not.
#pragma once

#include "primitives.cuh"

struct TwinArgs {
    float* y;
    const float* x;
    int n;
};

#define TWINS(kernel, threads)                                   \
    LM_KERNEL(right, TwinArgs, p, threads) { kernel<false>(p); } \
    LM_KERNEL(wrong, TwinArgs, p, threads) { kernel<true>(p); }

#define DEVICE static __device__ __forceinline__
