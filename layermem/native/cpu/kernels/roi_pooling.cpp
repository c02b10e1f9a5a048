// Region-of-interest pooling: a task is one row of the image that is written.
#include "cpu/kernels/roi_pooling.h"

#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

void check(const RoiPoolArgs& a) {
    if (a.n < 1 || a.c < 1 || a.h < 1 || a.w < 1 || a.rois < 0 || a.ho < 1 || a.wo < 1)
        throw std::invalid_argument("roi_pool: every size must be at least 1");
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

}  // namespace

Launch roi_pool_forward(const RoiPoolArgs& args) {
    check(args);
    return [=, &kernels = roi_pooling_kernels()] {
        check_regions(args);
        parallel_for(args.rois * args.ho, [&](int64_t row) { kernels.forward(args, row); });
    };
}

Launch roi_pool_backward(const RoiPoolArgs& args) {
    check(args);
    return [=, &kernels = roi_pooling_kernels()] {
        parallel_for(args.n * args.h, [&](int64_t row) { kernels.backward(args, row); });
    };
}

}  // namespace layermem::cpu
