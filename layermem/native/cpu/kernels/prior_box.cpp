// A task is a row of pixels.  Corners are computed in double from centers in float, as the SSD fork does.
#include "cpu/kernels/prior_box.h"

#include <algorithm>
#include <stdexcept>

#include "cpu/kernels/registry.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {

Launch prior_box(const PriorBoxes& b, float* y) {
    const auto sizes = static_cast<int64_t>(b.widths.size());
    if (b.size.h < 1 || b.size.w < 1 || sizes < 1 || b.heights.size() != b.widths.size() || b.variance.size() != 4 ||
        b.image.h < 1 || b.image.w < 1)
        throw std::invalid_argument("prior_box: every size must be at least 1, with a height for each width");
    return [=] {
        const int64_t floats = b.size.h * b.size.w * sizes * 4;
        const auto corner = [&](float center, float half, int64_t image) {
            const double at = (static_cast<double>(center) + static_cast<double>(half)) / static_cast<double>(image);
            return static_cast<float>(b.clip ? std::clamp(at, 0.0, 1.0) : at);
        };
        parallel_for(b.size.h, [&](int64_t row) {
            float* out = y + row * b.size.w * sizes * 4;
            const float down = (static_cast<float>(row) + b.offset) * b.step.h;
            for (int64_t column = 0; column < b.size.w; ++column) {
                const float right = (static_cast<float>(column) + b.offset) * b.step.w;
                for (size_t i = 0; i < b.widths.size(); ++i, out += 4) {
                    const float w = b.widths[i] / 2, h = b.heights[i] / 2;
                    out[0] = corner(right, -w, b.image.w);
                    out[1] = corner(down, -h, b.image.h);
                    out[2] = corner(right, w, b.image.w);
                    out[3] = corner(down, h, b.image.h);
                    for (size_t k = 0; k < 4; ++k) out[floats + static_cast<int64_t>(k)] = b.variance[k];
                }
            }
        });
    };
}

LAYERMEM_KERNEL(prior_box)

}  // namespace layermem::cpu
