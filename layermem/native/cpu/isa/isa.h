// Instruction sets (ISAs) of the machine, and the choice between them at run time.
//
// Every file of microkernels/ is compiled once per ISA, with LAYERMEM_ISA set to `base`, `avx2` or `avx512` and the
// compiler flags of that ISA (tools/compile_native.py), and defines one table of function pointers in namespace
// layermem::cpu::LAYERMEM_ISA.  Everything else is compiled for the baseline and calls through the table:
//
//     kernels/pooling.cpp  --pooling_kernels()-->  avx512::pooling_kernels  -->  loops of microkernels/pooling.cpp
//
// Each family has its own table, so that a change to one family's interface rebuilds that family only.  The tables are
// weak: a build for one machine alone (LAYERMEM_ISAS=native) links those of its best ISA only.
#pragma once
#include <string>
#include <vector>

namespace layermem::cpu {

template <class T>
using OrNull = T*;  // an argument that Python may leave out

enum class Isa { base, avx2, avx512 };

Isa active_isa();                           // the ISA that launches bound from now on will use
const char* isa_name(Isa isa);              // "base", "avx2" or "avx512"
std::vector<std::string> available_isas();  // built, and supported by this machine; slowest first
void set_isa(
    const std::string& name);  // a name of available_isas(), or "auto" for the fastest; std::invalid_argument otherwise

}  // namespace layermem::cpu

// Declares the tables `table` of type `Kernels`, one per ISA, and table(): the one for the active ISA.  To be used
// inside namespace layermem::cpu.  The tables are constant-initialized: no code of an ISA runs before it is chosen.
#if defined(__x86_64__) || defined(__i386__)
#define LAYERMEM_KERNEL_TABLE(Kernels, table)                                                     \
    namespace base {                                                                              \
    extern const Kernels table __attribute__((weak));                                             \
    }                                                                                             \
    namespace avx2 {                                                                              \
    extern const Kernels table __attribute__((weak));                                             \
    }                                                                                             \
    namespace avx512 {                                                                            \
    extern const Kernels table __attribute__((weak));                                             \
    }                                                                                             \
    inline const Kernels& table() {                                                               \
        const Isa isa = active_isa();                                                             \
        return isa == Isa::avx512 ? avx512::table : isa == Isa::avx2 ? avx2::table : base::table; \
    }
#else
#define LAYERMEM_KERNEL_TABLE(Kernels, table) \
    namespace base {                          \
    extern const Kernels table;               \
    }                                         \
    inline const Kernels& table() { return base::table; }
#endif
