#include "unit.h"

#include <stdexcept>

namespace layermem::cpu {
namespace {

std::vector<const Unit*> present() {
    std::vector<const Unit*> units{unit_base()};
#if defined(__x86_64__) || defined(__i386__)
    __builtin_cpu_init();
    // the question comes first: a unit's own function may already use its instructions
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    if (has_avx2 && unit_avx2()) units.push_back(unit_avx2());
    if (has_avx512 && unit_avx512()) units.push_back(unit_avx512());
#endif
    return units;
}

const std::vector<const Unit*>& all() {
    static const std::vector<const Unit*> units = present();
    return units;
}

const Unit*& chosen() {
    static const Unit* unit = all().back();
    return unit;
}

}  // namespace

const Unit& unit() { return *chosen(); }

std::vector<std::string> vector_units() {
    std::vector<std::string> names;
    for (const Unit* u : all()) names.push_back(u->name);
    return names;
}

void set_vector_unit(const std::string& name) {
    if (name == "auto") {
        chosen() = all().back();
        return;
    }
    std::string known;
    for (const Unit* u : all()) {
        if (name == u->name) {
            chosen() = u;
            return;
        }
        known += std::string(u->name) + ", ";
    }
    throw std::invalid_argument("this machine has no vector unit '" + name + "'; it has: " + known + "auto");
}

}  // namespace layermem::cpu
