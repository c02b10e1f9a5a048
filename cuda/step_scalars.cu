// step_scalars: the StepScalars of a device, one for each stream that runs kernels, which get its address.
//   They are part of a module, like code, so they take no bytes of the arena or of other allocations.
#include "step_scalars.cuh"

using namespace lm;

#if !defined(LM_EMULATE)
// LM_GLOBAL(type, name) is a variable in the GPU's memory, which the host finds by its name.
#define LM_GLOBAL(type, name) \
    extern "C" {              \
    __device__ type name;     \
    }
#endif

LM_GLOBAL(StepScalars, step_scalars[2])
