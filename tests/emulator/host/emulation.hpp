// What a kernel source sees instead of CUDA when g++ compiles it for the host.
//
// The builder puts this header in front of the source (g++ -include), precompiled with the primitives of cuda/ and
// calls.hpp, and then registration.hpp.  Qualifiers vanish, built-in variables become calls, vector types become structs,
// and the primitives of cuda/primitives.cuh call the emulated machine of machine.hpp.
#pragma once

#define LM_EMULATE 1
#if !defined(LM_EMULATE_ARCH)
#define LM_EMULATE_ARCH 900  // 750 takes the bodies written for GPUs without asynchronous copies and mma
#endif
#define LM_ARCH LM_EMULATE_ARCH

#define __global__
#define __device__
#define __host__
#define __constant__ const
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __restrict__ __restrict

#include "intrinsics.hpp"
#include "machine.hpp"
#include "vectors.hpp"

#define threadIdx (lm_emu::thread_index())
#define blockIdx (lm_emu::block_index())
#define blockDim (lm_emu::block_size())
#define gridDim (lm_emu::grid_size())
#define warpSize 32

// A global is exported, so that the fake driver finds it by its name.
#define LM_GLOBAL(type, name)                         \
    extern "C" {                                      \
    __attribute__((visibility("default"))) type name; \
    }

// Shared arrays are static, so that sanitizers know their bounds; the machine poisons them anew in every block.
#define LM_SHARED(type, name, ...)                             \
    static __attribute__((aligned(16))) type name __VA_ARGS__; \
    lm_emu::shared_variable(&name, sizeof(name), #name)
#define LM_DYN_SHARED(type, name) type* const name = static_cast<type*>(lm_emu::dynamic_shared())

#define LM_SITE lm_emu::Site site = {__builtin_FILE(), __builtin_LINE()}
#define LM_AND_SITE , LM_SITE
