// How a kernel source that is compiled for the host makes its kernels known.
//
// It depends on the source, and on which of its kernels are built, so it is not part of the precompiled header: the
// builder puts it behind that one.
#pragma once

// The end of the names of the kernels that a build holds; the empty text for all of them.
#if !defined(LM_EMULATE_ONLY)
#define LM_EMULATE_ONLY ""
#endif

// A kernel registers itself, so that it can be launched by name with a packed struct, as cuLaunchKernel does.  Its body
// is a template, so that g++ neither instantiates nor compiles what kernels need that the build leaves out.
#define LM_KERNEL(name, Args, args, ...)                                                                     \
    template <bool>                                                                                          \
    static void name(const Args args);                                                                       \
    static lm_emu::Kernel lm_kernel_##name(                                                                  \
        #name,                                                                                               \
        []() -> lm_emu::Kernel::Enter {                                                                      \
            if constexpr (lm_emu::ends_with(#name, LM_EMULATE_ONLY)) return lm_emu::enter<Args, name<true>>; \
            return nullptr;                                                                                  \
        }(),                                                                                                 \
        sizeof(Args), __VA_ARGS__);                                                                          \
    template <bool>                                                                                          \
    static void name(const Args args)

// The file that is compiled, such as .../cuda/pooling.cu: a launcher names the module by it.
const char* lm_emu_source() { return __BASE_FILE__; }
