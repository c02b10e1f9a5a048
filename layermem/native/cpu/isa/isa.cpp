// The ISAs are detected once, at first use; the best one is active until set_isa.
#include "cpu/isa/isa.h"

#include <atomic>
#include <stdexcept>

#include "cpu/microkernels/copy.h"

namespace layermem::cpu {
namespace {

std::vector<Isa> detect() {
#if defined(__x86_64__) || defined(__i386__)
    std::vector<Isa> isas;
    // An ISA is built if its tables exist; the table of copies stands for all of them.
    const auto add_built = [&isas](Isa isa, const CopyKernels* table) {
        if (table != nullptr) isas.push_back(isa);
    };
    __builtin_cpu_init();
    add_built(Isa::base, &base::copy_kernels);
    // Each condition covers every -m flag that compile_native.py gives to the files of that ISA.
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
        add_built(Isa::avx2, &avx2::copy_kernels);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq"))
        add_built(Isa::avx512, &avx512::copy_kernels);
    if (isas.empty()) throw std::runtime_error("layermem._native was built for another machine; run `make native`");
    return isas;
#else
    return {Isa::base};
#endif
}

const std::vector<Isa>& supported() {
    static const std::vector<Isa> isas = detect();
    return isas;
}

std::atomic<Isa>& active() {
    static std::atomic<Isa> isa{supported().back()};
    return isa;
}

}  // namespace

Isa active_isa() { return active().load(); }

const char* isa_name(Isa isa) {
    switch (isa) {
        case Isa::base: return "base";
        case Isa::avx2: return "avx2";
        case Isa::avx512: return "avx512";
    }
    return "";
}

std::vector<std::string> available_isas() {
    std::vector<std::string> names;
    for (const Isa isa : supported()) names.emplace_back(isa_name(isa));
    return names;
}

void set_isa(const std::string& name) {
    if (name == "auto") {
        active().store(supported().back());
        return;
    }
    std::string known;
    for (const Isa isa : supported()) {
        if (name == isa_name(isa)) {
            active().store(isa);
            return;
        }
        known += std::string(isa_name(isa)) + ", ";
    }
    throw std::invalid_argument("unknown ISA '" + name + "' (choose from " + known + "auto)");
}

}  // namespace layermem::cpu
