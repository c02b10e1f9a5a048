#include "cpu/kernels/registry.h"

#include <map>

namespace layermem::cpu {
namespace {

std::map<std::string, Kernel>& registry() {
    static std::map<std::string, Kernel> kernels;
    return kernels;
}

}  // namespace

KernelRegistration::KernelRegistration(const char* name, Kernel kernel) { registry().emplace(name, kernel); }

std::vector<std::string> kernel_names() {
    std::vector<std::string> names;
    for (const auto& [name, kernel] : registry()) names.push_back(name);
    return names;
}

Bound bind_kernel(const std::string& name, const char* packed, int64_t bytes) {
    const auto found = registry().find(name);
    if (found == registry().end()) throw std::invalid_argument("there is no kernel '" + name + "'");
    PackedArguments arguments(packed, bytes);
    return found->second(arguments);
}

}  // namespace layermem::cpu
