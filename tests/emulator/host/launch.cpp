// Launches: a kernel by its name, and what no GPU would take refused.
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "block.hpp"
#include "machine.hpp"
#include "race.hpp"

namespace lm_emu {

namespace {

Kernel* kernels = nullptr;
std::mutex one_launch;

Kernel* find(const char* name) {
    for (Kernel* k = kernels; k != nullptr; k = k->next)
        if (std::strcmp(k->name, name) == 0) return k;
    return nullptr;
}

}  // namespace

Kernel::Kernel(const char* name_, Enter enter_, size_t bytes_, int threads_, int blocks_)
    : name(name_), enter(enter_), bytes(bytes_), threads(threads_), blocks(blocks_), next(kernels) {
    if (enter != nullptr) kernels = this;
}

}  // namespace lm_emu

using lm_emu::machine;

static std::string refusal(const lm_emu::Kernel* kernel, const char* name, const LmLaunch& l, uint64_t bytes) {
    using lm_emu::text;
    if (kernel == nullptr) return text("this module has no kernel '%s'", name);
    if (bytes != kernel->bytes)
        return text("kernel '%s' takes a struct of %zu bytes, the launch brings %llu", name, kernel->bytes,
                    static_cast<unsigned long long>(bytes));
    const uint64_t threads = uint64_t{l.block[0]} * l.block[1] * l.block[2];
    const uint64_t blocks = uint64_t{l.grid[0]} * l.grid[1] * l.grid[2];
    const auto most =
        static_cast<uint64_t>(kernel->threads) < lm_emu::MAX_THREADS ? kernel->threads : lm_emu::MAX_THREADS;
    if (threads == 0 || threads > static_cast<uint64_t>(most))
        return text("kernel '%s' takes 1 to %llu threads a block, the launch asks for %llu", name,
                    static_cast<unsigned long long>(most), static_cast<unsigned long long>(threads));
    if (blocks == 0 || l.grid[0] >= 1u << 31 || l.grid[1] > 65535 || l.grid[2] > 65535 || blocks >= 1u << 31)
        return text("kernel '%s': grid (%u,%u,%u) is empty or too large", name, l.grid[0], l.grid[1], l.grid[2]);
    if (l.shared > lm_emu::MAX_SHARED)
        return text("kernel '%s': %llu bytes of shared memory; the largest GPUs have %zu", name,
                    static_cast<unsigned long long>(l.shared), lm_emu::MAX_SHARED);
    return {};
}

int lm_emu_launch(const char* name, const LmLaunch* launch, const void* args, uint64_t bytes) {
    const std::lock_guard<std::mutex> lock(lm_emu::one_launch);
    machine.kernel = lm_emu::find(name);
    machine.message = refusal(machine.kernel, name, *launch, bytes);
    if (!machine.message.empty()) return 1;
    machine.failed = false;
    machine.launch = *launch;
    machine.random = (launch->seed + 1) * 0x9E3779B97F4A7C15ull | 1;
    machine.variables.clear();
    void* dynamic = nullptr;  // a block of its own and of the exact size, so that ASan sees an overrun
    if (launch->shared > 0 && posix_memalign(&dynamic, 128, launch->shared) != 0) std::abort();
    machine.dynamic = static_cast<std::byte*>(dynamic);
    alignas(16) unsigned char copy[lm_emu::MAX_ARGUMENT_BYTES];
    std::memcpy(copy, args, bytes);
    machine.args = copy;
    lm_emu::race::launch_begins();
    machine.run();
    machine.now = nullptr;
    std::free(dynamic);
    machine.dynamic = nullptr;
    const std::string races = lm_emu::race::findings();
    if (!races.empty()) machine.message += (machine.message.empty() ? "" : "\n") + races;
    return machine.message.empty() ? 0 : 1;
}

const char* lm_emu_message(void) { return machine.message.c_str(); }

const char* lm_emu_banks(void) {
    static std::string report;
    report = lm_emu::race::bank_report();
    return report.c_str();
}

const char* lm_emu_reached(void) {
    static std::string places;
    places = lm_emu::race::reached();
    return places.c_str();
}

void lm_emu_close_stacks(void) { machine.stacks.close(); }

void lm_emu_leave_out(const uint32_t* places, uint64_t count) { lm_emu::race::leave_out(places, count); }

const char* lm_emu_kernel_name(int index) {
    const lm_emu::Kernel* k = lm_emu::kernels;
    for (; k != nullptr && index > 0; --index) k = k->next;
    return k != nullptr ? k->name : nullptr;
}

int lm_emu_kernel_info(const char* name, LmKernelInfo* info) {
    const lm_emu::Kernel* kernel = lm_emu::find(name);
    if (kernel == nullptr) return 1;
    *info = {kernel->bytes, kernel->static_shared, static_cast<uint32_t>(kernel->threads),
             static_cast<uint32_t>(kernel->blocks)};
    return 0;
}
