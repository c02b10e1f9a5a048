// The ratio becomes an integer bound for the random words, so that exactly the same elements are dropped on every ISA.
#include "cpu/kernels/dropout.h"

#include <cmath>
#include <stdexcept>

#include "cpu/kernels/element_tasks.h"
#include "cpu/kernels/registry.h"
#include "cpu/microkernels/dropout.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {

StepLaunch dropout(int64_t count, float* out, const float* x, double ratio, uint64_t seed, uint32_t stream,
                   bool accumulate, int64_t first) {
    check_count(count);
    if (!(ratio >= 0 && ratio < 1)) throw std::invalid_argument("dropout: the ratio must be at least 0 and below 1");
    const auto bound =
        static_cast<uint32_t>(std::floor(ratio * 4294967296.0));  // a random word is below it with p = ratio
    const Dropout bound_args{out,        x,     {static_cast<uint32_t>(seed), stream},
                             0,          bound, static_cast<float>(1 / (1 - ratio)),
                             accumulate, first};
    return [=, &kernels = dropout_kernels()](uint64_t step) {
        Dropout args = bound_args;
        args.step = step;
        parallel_for_ranges(count, kTaskElements,
                            [&](int64_t begin, int64_t end) { kernels.dropout(args, begin, end); });
    };
}

LAYERMEM_KERNEL(dropout)

}  // namespace layermem::cpu
