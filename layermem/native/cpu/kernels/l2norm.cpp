// One pass sums each pixel, one merges the pixels of a group, one writes.  A task is a range of pixels.
//
//     traffic  forward: x read twice, y written; backward: x and dy read three times, dx written
//     parts    the sums of dscale are taken over parts of the pixels, whose number depends on the shape only, and then
//              added in order; a slice of a batch adds its pixels to those of the whole batch's parts
#include "cpu/kernels/l2norm.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "cpu/kernels/registry.h"
#include "cpu/microkernels/reduction.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

constexpr int64_t kTaskFloats = 16384;
constexpr int64_t kPartFloats = 32768;  // floats of a part of a sum over pixels
constexpr int64_t kMaxParts = 32;

void check(const L2NormShape& s) {
    if (s.pixels < 1 || s.channels < 1 || s.group < 1 || s.pixels % s.group)
        throw std::invalid_argument("l2norm: pixels must be a multiple of group, and all sizes at least 1");
}

int64_t sum_parts(int64_t pixels, int64_t channels) {
    return std::min(pixels, std::clamp<int64_t>(pixels * channels / kPartFloats, 1, kMaxParts));
}

L2NormArgs norm_args(const L2NormShape& s, float eps, const float* x, const float* scale, void* workspace) {
    L2NormArgs args{};
    args.pixels = s.pixels;
    args.channels = s.channels;
    args.group = s.group;
    args.shared = s.shared;
    args.eps = eps;
    args.x = x;
    args.scale = scale;
    args.squares = static_cast<float*>(workspace);
    return args;
}

using PixelKernel = void (*)(const L2NormArgs&, int64_t begin, int64_t end);

void over_pixels(PixelKernel kernel, const L2NormArgs& args) {
    parallel_for_ranges(args.pixels, std::max<int64_t>(1, kTaskFloats / args.channels),
                        [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
}

// The sums of each group, in place of those of its pixels: 1 / n in squares, and in dots the sum itself.
void merge_groups(const L2NormArgs& args) {
    const auto total = [&](const float* sums, int64_t g) {
        double sum = 0;
        for (int64_t p = g * args.group; p < (g + 1) * args.group; ++p) sum += static_cast<double>(sums[p]);
        return sum;
    };
    // In order of groups: the sum of group g lands at or before the first pixel that it was taken from.
    for (int64_t g = 0; g < args.pixels / args.group; ++g) {
        args.squares[g] = static_cast<float>(1 / std::sqrt(total(args.squares, g) + static_cast<double>(args.eps)));
        if (args.dots) args.dots[g] = static_cast<float>(total(args.dots, g));
    }
}

// dscale from the parts' sums [parts][channels], once all `pixels` of the batch are in them.
void add_scale_sums(const L2NormKernels& kernels, const ReductionKernels& reduction, const L2NormShape& shape,
                    const L2NormArgs& args, const RowSlice& pixels, float* dscale, bool accumulate, float* sums) {
    const int64_t channels = shape.channels, parts = sum_parts(pixels.all, channels);
    parallel_for(parts, [&](int64_t i) {
        const int64_t first = chunk_begin(pixels.all, parts, i) - pixels.first;
        const int64_t begin = std::max<int64_t>(first, 0);
        const int64_t end = std::min(chunk_begin(pixels.all, parts, i + 1) - pixels.first, pixels.count);
        if (begin < end) kernels.scale_sums(args, begin, end, sums + i * channels, first < 0);
    });
    if (!pixels.is_last()) return;
    if (!shape.shared) return reduction.sum_rows(dscale, sums, channels, parts, channels, accumulate);
    double total = 0;
    for (int64_t i = 0; i < parts * channels; ++i) total += static_cast<double>(sums[i]);
    *dscale = accumulate ? *dscale + static_cast<float>(total) : static_cast<float>(total);
}

}  // namespace

// squares [pixels], dots [pixels], sums [parts][channels]; these are carried where a slice is not the whole batch.
int64_t l2norm_workspace_bytes(const L2NormShape& shape, bool is_slice) {
    check(shape);
    return 2 * aligned_bytes<float>(shape.pixels) + (is_slice ? 0 : l2norm_carry_bytes(shape.pixels, shape.channels));
}

int64_t l2norm_carry_bytes(int64_t pixels, int64_t channels) {
    return aligned_bytes<float>(sum_parts(pixels, channels) * channels);
}

Launch l2norm_forward(const L2NormShape& shape, float eps, float* y, const float* x, const float* scale,
                      void* workspace) {
    check(shape);
    L2NormArgs args = norm_args(shape, eps, x, scale, workspace);
    args.out = y;
    return [=, &kernels = l2norm_kernels()] {
        over_pixels(kernels.sums, args);
        merge_groups(args);
        over_pixels(kernels.forward, args);
    };
}

Launch l2norm_backward(const L2NormShape& shape, float eps, const L2NormBackward& backward, void* workspace,
                       int64_t first, int64_t of, void* carry) {
    check(shape);
    const RowSlice pixels = row_slice(shape.pixels, first, of);
    const bool has_scale = backward.dscale || carry;
    if (has_scale && !pixels.is_whole() && !carry)
        throw std::invalid_argument("l2norm: a slice of a batch needs what slices carry");
    L2NormArgs args = norm_args(shape, eps, backward.x, backward.scale, workspace);
    char* rest = static_cast<char*>(workspace) + aligned_bytes<float>(shape.pixels);
    args.dy = backward.dy;
    args.out = backward.dx;
    args.accumulate = backward.accumulate_dx;
    if (backward.dx) args.dots = reinterpret_cast<float*>(rest);
    auto* sums = pixels.is_whole() ? reinterpret_cast<float*>(rest + aligned_bytes<float>(shape.pixels))
                                   : static_cast<float*>(carry);
    return [=, &kernels = l2norm_kernels(), &reduction = reduction_kernels()] {
        over_pixels(kernels.sums, args);
        merge_groups(args);
        if (has_scale)  // before dx, which may lie over x or dy
            add_scale_sums(kernels, reduction, shape, args, pixels, backward.dscale, backward.accumulate_dscale, sums);
        if (backward.dx) over_pixels(kernels.backward, args);
    };
}

LAYERMEM_KERNEL(l2norm_workspace_bytes)
LAYERMEM_KERNEL(l2norm_carry_bytes)
LAYERMEM_KERNEL(l2norm_forward)
LAYERMEM_KERNEL(l2norm_backward)

}  // namespace layermem::cpu
