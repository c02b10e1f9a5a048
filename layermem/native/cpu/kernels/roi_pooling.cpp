// Region-of-interest pooling: a task is one row of the image that is written.
#include "cpu/kernels/roi_pooling.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "cpu/kernels/registry.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

RoiPoolArgs args_of(const RoiShape& s, float* out, const float* in, const float* regions, int32_t* argmax,
                    bool accumulate) {
    const RoiPoolArgs a{s.n, s.c, s.size.h, s.size.w, s.rois,    s.out.h, s.out.w, s.spatial_scale,
                        out, in,  regions,  argmax,   accumulate};
    if (a.n < 1 || a.c < 1 || a.h < 1 || a.w < 1 || a.rois < 0 || a.ho < 1 || a.wo < 1)
        throw std::invalid_argument("roi_pool: every size must be at least 1");
    return a;
}

// Regions are data: they are checked when the launch runs.
void check_regions(const RoiPoolArgs& args) {
    for (int64_t r = 0; r < args.rois; ++r) {
        const float* roi = args.regions + r * 5;
        bool good = roi[0] > -1 && roi[0] < static_cast<float>(args.n);
        for (int i = 0; i < 5; ++i) good = good && std::isfinite(roi[i]);
        if (good) continue;
        char text[200];
        std::snprintf(text, sizeof text,
                      "reads a region of interest in image %.9g, from %.9g, %.9g to %.9g, %.9g, but has %lld images: 0 "
                      "to %lld",
                      static_cast<double>(roi[0]), static_cast<double>(roi[1]), static_cast<double>(roi[2]),
                      static_cast<double>(roi[3]), static_cast<double>(roi[4]), static_cast<long long>(args.n),
                      static_cast<long long>(args.n - 1));
        throw std::invalid_argument(text);
    }
}

// -- means, channel by channel: lanes would be g^2 channels apart -----------------------------------------------------

struct Span {  // of a window along one axis: [begin, end)
    int64_t begin, end;
};

// round(value), halves away from zero; corners beyond 2^24 are taken there.
float whole(float value) { return std::round(std::min(std::max(value, -16777216.0f), 16777216.0f)); }

Span mean_span(int64_t i, float first, float last, float scale, int64_t out, int64_t size) {
    const float begin = whole(first) * scale, end = (whole(last) + 1) * scale;
    const float bin = std::max(end - begin, 0.1f) / static_cast<float>(out);
    const float low = static_cast<float>(i) * bin, high = static_cast<float>(i + 1) * bin;
    const auto clip = [&](float at) { return std::clamp<int64_t>(static_cast<int64_t>(at), 0, size); };
    return {clip(std::floor(low + begin)), clip(std::ceil(high + begin))};
}

Span mean_rows(const RoiPoolArgs& a, const float* roi, int64_t i) {
    return mean_span(i, roi[2], roi[4], a.spatial_scale, a.ho, a.h);
}

Span mean_columns(const RoiPoolArgs& a, const float* roi, int64_t j) {
    return mean_span(j, roi[1], roi[3], a.spatial_scale, a.wo, a.w);
}

// Writes row `row` of the rois * g rows of y.
void mean_forward(const RoiPoolArgs& a, int64_t row) {
    const int64_t grid = a.ho, outputs = a.c / (grid * grid), i = row % grid;
    const float* roi = a.regions + row / grid * 5;
    const float* image = a.in + static_cast<int64_t>(roi[0]) * a.h * a.w * a.c;
    const Span down = mean_rows(a, roi, i);
    for (int64_t j = 0; j < grid; ++j) {
        const Span right = mean_columns(a, roi, j);
        const auto area = static_cast<float>(std::max<int64_t>(down.end - down.begin, 0) *
                                             std::max<int64_t>(right.end - right.begin, 0));
        float* y = a.out + (row * grid + j) * outputs;
        for (int64_t k = 0; k < outputs; ++k) {
            const float* x = image + (k * grid + i) * grid + j;
            float sum = 0;
            for (int64_t h = down.begin; h < down.end; ++h)
                for (int64_t w = right.begin; w < right.end; ++w) sum += x[(h * a.w + w) * a.c];
            y[k] = area > 0 ? sum / area : 0;
        }
    }
}

// Writes row `row` of the n * h rows of dx, gathered in the order of regions and of their windows.
void mean_backward(const RoiPoolArgs& a, int64_t row) {
    const int64_t grid = a.ho, outputs = a.c / (grid * grid), item = row / a.h, h = row % a.h;
    float* out = a.out + row * a.w * a.c;
    if (!a.accumulate) std::fill(out, out + a.w * a.c, 0.0f);
    for (int64_t r = 0; r < a.rois; ++r) {
        const float* roi = a.regions + r * 5;
        if (static_cast<int64_t>(roi[0]) != item) continue;
        for (int64_t i = 0; i < grid; ++i) {
            const Span down = mean_rows(a, roi, i);
            if (h < down.begin || h >= down.end) continue;
            for (int64_t j = 0; j < grid; ++j) {
                const Span right = mean_columns(a, roi, j);
                const auto area = static_cast<float>((down.end - down.begin) * (right.end - right.begin));
                const float* dy = a.in + ((r * grid + i) * grid + j) * outputs;
                for (int64_t w = right.begin; w < right.end; ++w)
                    for (int64_t k = 0; k < outputs; ++k) out[w * a.c + (k * grid + i) * grid + j] += dy[k] / area;
            }
        }
    }
}

void check_grid(const RoiPoolArgs& a) {
    if (a.ho != a.wo || a.c % (a.ho * a.wo)) throw std::invalid_argument("ps_roi_pool: g^2 must divide the channels");
}

}  // namespace

Launch ps_roi_pool_forward(const RoiShape& shape, float* y, const float* x, const float* regions) {
    const RoiPoolArgs args = args_of(shape, y, x, regions, nullptr, false);
    check_grid(args);
    return [=] {
        check_regions(args);
        parallel_for(args.rois * args.ho, [&](int64_t row) { mean_forward(args, row); });
    };
}

Launch ps_roi_pool_backward(const RoiShape& shape, float* dx, const float* dy, const float* regions, bool accumulate) {
    const RoiPoolArgs args = args_of(shape, dx, dy, regions, nullptr, accumulate);
    check_grid(args);
    return [=] { parallel_for(args.n * args.h, [&](int64_t row) { mean_backward(args, row); }); };
}

Launch roi_pool_forward(const RoiShape& shape, float* y, const float* x, const float* regions, int32_t* argmax) {
    const RoiPoolArgs args = args_of(shape, y, x, regions, argmax, false);
    return [=, &kernels = roi_pooling_kernels()] {
        check_regions(args);
        parallel_for(args.rois * args.ho, [&](int64_t row) { kernels.forward(args, row); });
    };
}

Launch roi_pool_backward(const RoiShape& shape, float* dx, const float* dy, const float* regions, int32_t* argmax,
                         bool accumulate) {
    const RoiPoolArgs args = args_of(shape, dx, dy, regions, argmax, accumulate);
    return [=, &kernels = roi_pooling_kernels()] {
        parallel_for(args.n * args.h, [&](int64_t row) { kernels.backward(args, row); });
    };
}

LAYERMEM_KERNEL(roi_pool_forward)
LAYERMEM_KERNEL(roi_pool_backward)
LAYERMEM_KERNEL(ps_roi_pool_forward)
LAYERMEM_KERNEL(ps_roi_pool_backward)

}  // namespace layermem::cpu
