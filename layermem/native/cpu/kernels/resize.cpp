// Interp: bilinear sampling of the region [begin, begin + size) of x [n][h][w][c] at ho x wo points.  A task is one row
// of the image that is written; backward gathers, so each dx is written by one task, in a fixed order.
#include "cpu/kernels/resize.h"

#include <stdexcept>

#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

void check(const InterpArgs& args) {
    if (args.n < 1 || args.c < 1 || args.h < 1 || args.w < 1 || args.ho < 1 || args.wo < 1 || args.size_h < 1 ||
        args.size_w < 1)
        throw std::invalid_argument("interp: every size must be at least 1");
    if (args.begin_h < 0 || args.begin_w < 0 || args.begin_h + args.size_h > args.h ||
        args.begin_w + args.size_w > args.w)
        throw std::invalid_argument("interp: the sampled region leaves the image");
}

}  // namespace

Launch interp_forward(const InterpArgs& args) {
    check(args);
    return [=, &kernels = resize_kernels()] {
        parallel_for(args.n * args.ho, [&](int64_t row) { kernels.interp(args, row); });
    };
}

Launch interp_backward(const InterpArgs& args) {
    check(args);
    return [=, &kernels = resize_kernels()] {
        parallel_for(args.n * args.h, [&](int64_t row) { kernels.interp_backward(args, row); });
    };
}

}  // namespace layermem::cpu
