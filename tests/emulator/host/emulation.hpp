// What a kernel source sees instead of CUDA when g++ compiles it for the host.
//
// The builder puts this header in front of the source (g++ -include).  Qualifiers vanish, built-in variables become
// calls, vector types become structs, and the primitives of cuda/primitives.cuh call the emulated machine of
// machine.hpp.
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

#include "machine.hpp"
#include "vectors.hpp"
#include "intrinsics.hpp"

#define threadIdx (lm_emu::thread_index())
#define blockIdx (lm_emu::block_index())
#define blockDim (lm_emu::block_size())
#define gridDim (lm_emu::grid_size())
#define warpSize 32

// The end of the names of the kernels that a build holds; the empty text for all of them.  g++ makes no code of others.
#if !defined(LM_EMULATE_ONLY)
#define LM_EMULATE_ONLY ""
#endif

// A kernel registers itself, so that it can be launched by name with a packed struct, as cuLaunchKernel does.
#define LM_KERNEL(name, Args, args, ...)                                                                  \
    static void name(const Args args);                                                                    \
    static lm_emu::Kernel lm_kernel_##name(                                                               \
        #name, lm_emu::Entry<Args, name, lm_emu::ends_with(#name, LM_EMULATE_ONLY)>::enter, sizeof(Args), \
        __VA_ARGS__);                                                                                     \
    static void name(const Args args)

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

// The file that is compiled, such as .../cuda/pooling.cu: a launcher looks up what ptxas made of its kernels.
const char* lm_emu_source() { return __BASE_FILE__; }

#define LM_SITE lm_emu::Site site = {__builtin_FILE(), __builtin_LINE()}
#define LM_AND_SITE , LM_SITE
