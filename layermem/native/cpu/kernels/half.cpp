// Conversions are bound by memory: tasks only spread them over threads.
#include "cpu/kernels/half.h"

#include <stdexcept>

#include "cpu/kernels/stored.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

// convert: a member of HalfKernels
template <class Out, class In>
Launch converting(void (*convert)(Out*, const In*, int64_t), int64_t count, Out* out, const In* in) {
    check_count(count);
    return [=] {
        parallel_for_ranges(count, kTaskElements,
                            [&](int64_t begin, int64_t end) { convert(out + begin, in + begin, end - begin); });
    };
}

}  // namespace

Storage storage_named(const std::string& name) {
    if (name.empty()) return Storage::fp32;
    if (name == "bf16") return Storage::bf16;
    if (name == "fp16") return Storage::fp16;
    throw std::invalid_argument("unknown storage '" + name + "'");
}

Launch widen_bf16(int64_t count, float* out, const uint16_t* in) {
    return converting(half_kernels().widen_bf16, count, out, in);
}

Launch narrow_bf16(int64_t count, uint16_t* out, const float* in) {
    return converting(half_kernels().narrow_bf16, count, out, in);
}

Launch widen_fp16(int64_t count, float* out, const uint16_t* in) {
    return converting(half_kernels().widen_fp16, count, out, in);
}

Launch narrow_fp16(int64_t count, uint16_t* out, const float* in) {
    return converting(half_kernels().narrow_fp16, count, out, in);
}

}  // namespace layermem::cpu
