// The ISAs are detected once, at first use; the best one is active until set_isa.
#include "cpu/isa/isa.h"

#include <atomic>
#include <stdexcept>

namespace layermem::cpu {
namespace {

std::vector<Isa> detect() {
    std::vector<Isa> isas{Isa::base};
#if defined(__x86_64__) || defined(__i386__)
    __builtin_cpu_init();
    // Each condition covers every -m flag that setup.py gives to the files of that ISA.
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) isas.push_back(Isa::avx2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq"))
        isas.push_back(Isa::avx512);
#endif
    return isas;
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
