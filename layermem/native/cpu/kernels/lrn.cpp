// LRN.  Across channels a task is a range of pixels, with three rows of channels as workspace.  Within a channel a task
// is a row of an image; backward then takes two passes over a group of images, whose products are the workspace.
//
// s = k + alpha * (sum of squares in the window) is computed again in backward: storing it would cost as much as x.
#include "cpu/kernels/lrn.h"

#include <algorithm>
#include <stdexcept>

#include "cpu/kernels/registry.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

constexpr int64_t kMaxTasks = 32;         // across channels: each has its own workspace
constexpr int64_t kGroupFloats = 262144;  // within a channel: of the images that backward processes at a time

// Floats of one task's workspace across channels: three rows, padded at both ends, in whole cache lines.
int64_t task_floats(const LrnArgs& args) { return (3 * (args.c + args.size - 1) + 63) / 64 * 64; }

// Images of a group: one large image, or several small ones, so that their products stay in the last-level cache.
int64_t group_images(const LrnArgs& args) {
    return std::clamp<int64_t>(kGroupFloats / (args.h * args.w * args.c), 1, args.n);
}

void check(const LrnArgs& args) {
    if (args.n < 1 || args.h < 1 || args.w < 1 || args.c < 1)
        throw std::invalid_argument("lrn: every size must be at least 1");
    if (args.size < 1 || args.size % 2 == 0) throw std::invalid_argument("lrn: the window must have an odd size");
}

using PixelKernel = void (*)(const LrnArgs&, int64_t begin, int64_t end, float* workspace);

Launch across_channels(const LrnArgs& args, PixelKernel kernel, void* workspace) {
    return [=] {
        const int64_t pixels = args.n * args.h * args.w, tasks = std::min(kMaxTasks, pixels);
        parallel_for(tasks, [&](int64_t i) {
            float* own = static_cast<float*>(workspace) + i * task_floats(args);
            kernel(args, chunk_begin(pixels, tasks, i), chunk_begin(pixels, tasks, i + 1), own);
        });
    };
}

}  // namespace

int64_t lrn_workspace_bytes(int64_t n, int64_t h, int64_t w, int64_t c, int64_t size, bool across, bool backward) {
    LrnArgs args{};
    args.n = n;
    args.h = h;
    args.w = w;
    args.c = c;
    args.size = size;
    check(args);
    if (across) return aligned_bytes<float>(kMaxTasks * task_floats(args));
    return backward ? aligned_bytes<float>(group_images(args) * 2 * h * w * c) : 0;
}

Launch lrn_forward(const LrnArgs& args, bool across, OrNull<void> workspace) {
    check(args);
    if (across) return across_channels(args, lrn_kernels().across, workspace);
    return [=, &kernels = lrn_kernels()] {
        parallel_for(args.n * args.h, [&](int64_t row) { kernels.within(args, row, nullptr); });
    };
}

Launch lrn_backward(const LrnArgs& args, bool across, OrNull<void> workspace) {
    check(args);
    if (!args.dy) throw std::invalid_argument("lrn: dy is needed");
    if (across) return across_channels(args, lrn_kernels().across_backward, workspace);
    return [=, &kernels = lrn_kernels()] {
        const int64_t group = group_images(args), image = 2 * args.h * args.w * args.c;
        float* products = static_cast<float*>(workspace);  // [group][2][h][w][c]
        for (int64_t first = 0; first < args.n; first += group) {
            const int64_t rows = std::min(group, args.n - first) * args.h, begin = first * args.h;
            parallel_for(rows, [&](int64_t r) { kernels.within(args, begin + r, products + r / args.h * image); });
            parallel_for(rows,
                         [&](int64_t r) { kernels.within_backward(args, begin + r, products + r / args.h * image); });
        }
    };
}

LAYERMEM_KERNEL(lrn_workspace_bytes)
LAYERMEM_KERNEL(lrn_forward)
LAYERMEM_KERNEL(lrn_backward)

}  // namespace layermem::cpu
