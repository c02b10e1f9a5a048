// Conversions are bound by memory: tasks only spread them over threads.
#include "cpu/kernels/half.h"

#include <stdexcept>

#include "cpu/kernels/registry.h"
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

LAYERMEM_KERNEL(widen_bf16)
LAYERMEM_KERNEL(narrow_bf16)
LAYERMEM_KERNEL(widen_fp16)
LAYERMEM_KERNEL(narrow_fp16)

}  // namespace layermem::cpu
