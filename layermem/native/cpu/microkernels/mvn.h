// Mean and variance along an axis, removed.
#pragma once
#include <cstdint>

#include "cpu/isa/isa.h"
#include "cpu/microkernels/axis.h"

namespace layermem::cpu {

struct MvnArgs {
    Axis axis;
    float* y;
    const float* x;
    OrNull<float> inv_std;  // [outer][inner]
    bool normalize;
    float eps;
};

struct MvnBackwardArgs {
    Axis axis;
    float* dx;
    const float* dy;
    OrNull<const float> y;        // null where the variance was not normalized
    OrNull<const float> inv_std;  // [outer][inner], likewise
    bool accumulate;
};

struct MvnKernels {  // columns [begin, end) of one block, at most 64
    void (*mvn)(const MvnArgs&, int64_t block, int64_t begin, int64_t end);
    void (*mvn_backward)(const MvnBackwardArgs&, int64_t block, int64_t begin, int64_t end);
};
LAYERMEM_KERNEL_TABLE(MvnKernels, mvn_kernels)

}  // namespace layermem::cpu
