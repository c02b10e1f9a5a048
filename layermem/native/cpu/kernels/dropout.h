// Dropout, forward and backward: a launch is called with the step of training, which selects the elements to drop.
#pragma once
#include "cpu/kernels/launch.h"

namespace layermem::cpu {

// out (+)= x / (1 - ratio), or 0 for a fraction `ratio` of the elements.  The choice depends on seed, stream (one per
// layer), step and the index of the element, so backward repeats the choice of forward without storing it.
// out may be x;  first: number of the first element, in the whole batch
StepLaunch dropout(int64_t count, float* out, const float* x, double ratio, uint64_t seed, uint32_t stream,
                   bool accumulate = false, int64_t first = 0);

}  // namespace layermem::cpu
