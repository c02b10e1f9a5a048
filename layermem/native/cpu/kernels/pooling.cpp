// Pooling: a task is a few rows of the image that is written.
//
//     forward   writes y [n][ho][wo][c]; a row reads kh rows of x
//     backward  writes dx [n][h][w][c] by gathering: each pixel adds up the windows that contain it.  Scattering dy
//               would let two tasks write one pixel, and its sum would depend on their order.
#include "cpu/kernels/pooling.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "cpu/kernels/registry.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

constexpr int64_t kPoolTaskFloats = 4096;  // floats that a task writes, unless one row is longer

// `rows` rows of `width` floats are written, each by one call of the kernel.
Launch over_rows(PoolRow kernel, const PoolArgs& args, int64_t rows, int64_t width) {
    args.problem.check();
    return [=] {
        const int64_t step = std::max<int64_t>(1, kPoolTaskFloats / width);
        parallel_for_ranges(rows, step, [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) kernel(args, row);
        });
    };
}

Launch forward(PoolRow kernel, const PoolArgs& args) {
    const PoolProblem& p = args.problem;
    return over_rows(kernel, args, p.n * p.ho, p.wo * p.c);
}

Launch backward(PoolRow kernel, const PoolArgs& args) {
    const PoolProblem& p = args.problem;
    return over_rows(kernel, args, p.n * p.h, p.w * p.c);
}

}  // namespace

void PoolProblem::check() const {
    const auto fail = [](const char* what) { throw std::invalid_argument(std::string("pooling: ") + what); };
    if (n < 1 || c < 1 || h < 1 || w < 1 || ho < 1 || wo < 1) fail("every size must be at least 1");
    if (kh < 1 || kw < 1 || sh < 1 || sw < 1) fail("kernel and stride must be at least 1");
    if (ph < 0 || pw < 0 || ph >= kh || pw >= kw) fail("pad must be at least 0 and less than the kernel");
    // Every window meets the image: Caffe clips the output size likewise, and a maximum of nothing does not exist.
    if ((ho - 1) * sh - ph >= h || (wo - 1) * sw - pw >= w) fail("the last window lies outside the image");
}

Launch max_pool_forward(const PoolProblem& p, float* y, const float* x, OrNull<void> argmax, Storage storage) {
    return forward(of_storage(pooling_kernels().max_pool, storage), {p, y, x, argmax, false});
}

Launch max_pool_backward(const PoolProblem& p, float* dx, const float* dy, const void* argmax, bool accumulate,
                         Storage storage) {
    return backward(of_storage(pooling_kernels().max_pool_backward, storage),
                    {p, dx, dy, const_cast<void*>(argmax), accumulate});
}

Launch average_pool_forward(const PoolProblem& p, float* y, const float* x, Storage storage) {
    return forward(of_storage(pooling_kernels().average_pool, storage), {p, y, x, nullptr, false});
}

Launch average_pool_backward(const PoolProblem& p, float* dx, const float* dy, bool accumulate, Storage storage) {
    return backward(of_storage(pooling_kernels().average_pool_backward, storage), {p, dx, dy, nullptr, accumulate});
}

// -- Mask and STOCHASTIC ----------------------------------------------------------------------------------------------

Launch max_pool_mask(const PoolProblem& p, float* mask, const void* argmax) {
    return forward(pooling_kernels().max_pool_mask, {p, mask, nullptr, const_cast<void*>(argmax), false});
}

StepLaunch stochastic_pool_forward(const PoolProblem& p, float* y, const float* x, OrNull<void> argmax, uint64_t seed,
                                   uint32_t stream, int64_t first) {
    p.check();
    return [=, &kernels = pooling_kernels()](uint64_t step) {
        const PoolArgs args{p, y, x, argmax, false};
        const PoolRandom random{{static_cast<uint32_t>(seed), stream}, step, first};
        const int64_t rows = std::max<int64_t>(1, kPoolTaskFloats / (p.wo * p.c));
        parallel_for_ranges(p.n * p.ho, rows, [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) kernels.stochastic_pool(args, random, row);
        });
    };
}

Launch stochastic_pool_average(const PoolProblem& p, float* y, const float* x) {
    return forward(pooling_kernels().stochastic_average, {p, y, x, nullptr, false});
}

LAYERMEM_KERNEL(max_pool_forward)
LAYERMEM_KERNEL(max_pool_backward)
LAYERMEM_KERNEL(average_pool_forward)
LAYERMEM_KERNEL(average_pool_backward)
LAYERMEM_KERNEL(max_pool_mask)
LAYERMEM_KERNEL(stochastic_pool_forward)
LAYERMEM_KERNEL(stochastic_pool_average)

}  // namespace layermem::cpu
