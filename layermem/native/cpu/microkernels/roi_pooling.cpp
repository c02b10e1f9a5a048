// Region-of-interest pooling, one row of windows or of pixels at a time.
//
// Along one axis a region covers the pixels [first, last], at least one; window i of `out` begins at floor(i * bin) and
// ends before ceil((i + 1) * bin), bin = size / out in float, and is clipped to the image.
#include "cpu/microkernels/roi_pooling.h"

#include "cpu/isa/simd_math.h"

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

struct Span {  // of a window along one axis: [begin, end)
    int64_t begin, end;
};

// round(value * scale), halves away from zero; corners beyond 2^24 are taken there.
inline int64_t corner(float value, float scale) {
    const float far = 16777216.0f, scaled = value * scale;
    const double near = static_cast<double>(scaled < -far ? -far : scaled > far ? far : scaled);
    return static_cast<int64_t>(near < 0 ? near - 0.5 : near + 0.5);
}

inline int64_t clip(int64_t at, int64_t size) { return min(max(at, 0), size); }

inline Span span_of(int64_t i, int64_t first, int64_t last, int64_t out, int64_t size) {
    const float bin = static_cast<float>(max(last - first + 1, 1)) / static_cast<float>(out);
    const float begin = static_cast<float>(i) * bin, end = static_cast<float>(i + 1) * bin;
    const auto whole = static_cast<int64_t>(end);  // both are positive: the cast rounds down
    const int64_t above = static_cast<float>(whole) < end ? whole + 1 : whole;
    return {clip(static_cast<int64_t>(begin) + first, size), clip(above + first, size)};
}

inline Span rows_of(const RoiPoolArgs& args, const float* roi, int64_t i) {
    return span_of(i, corner(roi[2], args.spatial_scale), corner(roi[4], args.spatial_scale), args.ho, args.h);
}

inline Span columns_of(const RoiPoolArgs& args, const float* roi, int64_t i) {
    return span_of(i, corner(roi[1], args.spatial_scale), corner(roi[3], args.spatial_scale), args.wo, args.w);
}

// Among equal values the first in row-major order wins, so that a recomputation gives the same argmax.
void forward(const RoiPoolArgs& args, int64_t row) {
    const float* roi = args.regions + row / args.ho * 5;
    const Span down = rows_of(args, roi, row % args.ho);
    const float* image = args.in + static_cast<int64_t>(roi[0]) * args.h * args.w * args.c;
    for (int64_t ow = 0; ow < args.wo; ++ow) {
        const Span right = columns_of(args, roi, ow);
        const int64_t at = (row * args.wo + ow) * args.c;
        const bool empty = down.begin >= down.end || right.begin >= right.end;
        const int64_t first = empty ? -1 : down.begin * args.w + right.begin;
        for_each_vector(0, args.c, [&](int64_t c, auto n) {
            V best = empty ? zero() : broadcast(-__builtin_inff());
            I where = I{} + static_cast<int32_t>(first);
            for (int64_t h = down.begin; h < down.end; ++h)
                for (int64_t w = right.begin; w < right.end; ++w) {
                    const V v = load(image + (h * args.w + w) * args.c + c, n);
                    const I more = v > best;
                    best = select(more, v, best);
                    where = (more & static_cast<int32_t>(h * args.w + w)) | (~more & where);
                }
            store(args.out + at + c, best, n);
            if (args.argmax) __builtin_memcpy(args.argmax + at + c, &where, static_cast<size_t>(n) * 4);
        });
    }
}

// Adds the dy of the windows of one region in row i of y whose maximum is in row h of the image.
inline void add_windows(const RoiPoolArgs& args, const float* roi, int64_t i, int64_t h, float* out) {
    for (int64_t ow = 0; ow < args.wo; ++ow) {
        const Span right = columns_of(args, roi, ow);
        const int64_t at = (i * args.wo + ow) * args.c;
        for (int64_t w = right.begin; w < right.end; ++w)
            for_each_vector(0, args.c, [&](int64_t c, auto n) {
                I where{};
                __builtin_memcpy(&where, args.argmax + at + c, static_cast<size_t>(n) * 4);
                const V dy = load(args.in + at + c, n);
                float* dx = out + w * args.c + c;
                const V more = select(where == static_cast<int32_t>(h * args.w + w), dy, zero());
                store(dx, load(dx, n) + more, n);
            });
    }
}

// Gathers, so that each dx is written by one task, in the order of regions and of their windows.
void backward(const RoiPoolArgs& args, int64_t row) {
    const int64_t item = row / args.h, h = row % args.h;
    float* out = args.out + row * args.w * args.c;
    if (!args.accumulate) for_each_vector(0, args.w * args.c, [&](int64_t i, auto n) { store(out + i, zero(), n); });
    for (int64_t r = 0; r < args.rois; ++r) {
        const float* roi = args.regions + r * 5;
        if (static_cast<int64_t>(roi[0]) != item) continue;
        for (int64_t i = 0; i < args.ho; ++i) {
            const Span down = rows_of(args, roi, i);
            if (down.begin <= h && h < down.end) add_windows(args, roi, r * args.ho + i, h, out);
        }
    }
}

}  // namespace

const RoiPoolingKernels roi_pooling_kernels = {forward, backward};

}  // namespace layermem::cpu::LAYERMEM_ISA
