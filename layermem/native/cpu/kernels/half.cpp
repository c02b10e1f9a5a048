// Conversions are bound by memory: tasks only spread them over threads.
#include "cpu/kernels/half.h"

#include "cpu/kernels/element_tasks.h"
#include "cpu/microkernels/half.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {

Launch widen_bf16(int64_t count, float* out, const uint16_t* in) {
    check_count(count);
    return [=, &kernels = half_kernels()] {
        parallel_for_ranges(count, kTaskElements,
                            [&](int64_t begin, int64_t end) { kernels.widen(out + begin, in + begin, end - begin); });
    };
}

Launch narrow_bf16(int64_t count, uint16_t* out, const float* in) {
    check_count(count);
    return [=, &kernels = half_kernels()] {
        parallel_for_ranges(count, kTaskElements,
                            [&](int64_t begin, int64_t end) { kernels.narrow(out + begin, in + begin, end - begin); });
    };
}

}  // namespace layermem::cpu
