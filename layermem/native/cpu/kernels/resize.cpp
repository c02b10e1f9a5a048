// Interp: bilinear sampling of the region [begin, begin + size) of x [n][h][w][c] at ho x wo points.  A task is one row
// of the image that is written; backward gathers, so each dx is written by one task, in a fixed order.
#include "cpu/kernels/resize.h"

#include <stdexcept>

#include "cpu/kernels/registry.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

InterpArgs checked(const InterpArgs& args) {
    if (args.n < 1 || args.c < 1 || args.h < 1 || args.w < 1 || args.ho < 1 || args.wo < 1 || args.size_h < 1 ||
        args.size_w < 1)
        throw std::invalid_argument("interp: every size must be at least 1");
    if (args.begin_h < 0 || args.begin_w < 0 || args.begin_h + args.size_h > args.h ||
        args.begin_w + args.size_w > args.w)
        throw std::invalid_argument("interp: the sampled region leaves the image");
    return args;
}

}  // namespace

Launch interp_forward(int64_t n, int64_t c, Pair size, Pair out, Pair begin, Pair region, float* y, const float* x) {
    const InterpArgs args =
        checked({n, c, size.h, size.w, out.h, out.w, begin.h, region.h, begin.w, region.w, y, x, /*accumulate=*/false});
    return [args, &kernels = resize_kernels()] {
        parallel_for(args.n * args.ho, [&](int64_t row) { kernels.interp(args, row); });
    };
}

Launch interp_backward(int64_t n, int64_t c, Pair size, Pair out, Pair begin, Pair region, float* dx, const float* dy,
                       bool accumulate) {
    const InterpArgs args =
        checked({n, c, size.h, size.w, out.h, out.w, begin.h, region.h, begin.w, region.w, dx, dy, accumulate});
    return [args, &kernels = resize_kernels()] {
        parallel_for(args.n * args.h, [&](int64_t row) { kernels.interp_backward(args, row); });
    };
}

LAYERMEM_KERNEL(interp_forward)
LAYERMEM_KERNEL(interp_backward)

}  // namespace layermem::cpu
