// A task is a strip of columns of one block, or the whole block where inner is 1: it computes its means and only then
// writes, so that an output may lie over an input.
#include "cpu/kernels/mvn.h"

#include "cpu/kernels/registry.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

constexpr int64_t kStripColumns = 64;

template <class Kernel, class Args>
void run_strips(const Kernel& kernel, const Args& args) {
    const int64_t strips = ceil_div(args.axis.inner, kStripColumns);
    parallel_for(args.axis.outer * strips, [&](int64_t task) {
        const int64_t begin = task % strips * kStripColumns;
        kernel(args, task / strips, begin, std::min(args.axis.inner, begin + kStripColumns));
    });
}

}  // namespace

Launch mvn_forward(const MvnArgs& args) {
    args.axis.check();
    return [=, &kernels = mvn_kernels()] { run_strips(kernels.mvn, args); };
}

Launch mvn_backward(const MvnBackwardArgs& args) {
    args.axis.check();
    return [=, &kernels = mvn_kernels()] { run_strips(kernels.mvn_backward, args); };
}

LAYERMEM_KERNEL(mvn_forward)
LAYERMEM_KERNEL(mvn_backward)

}  // namespace layermem::cpu
