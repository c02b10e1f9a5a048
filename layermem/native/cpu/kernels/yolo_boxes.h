// The predictions of grid detectors (YOLO): ops/yolo.py defines the numbers of a prediction.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

namespace layermem::cpu {

constexpr int64_t kGridBox = 5;  // x, y, w, h, objectness; classes follow

struct CenterBox {
    float x, y, width, height;  // of the center, and size, in images
};

// Computed in double, so that every device rounds to the same float.
inline float grid_sigmoid(float x) { return static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(x)))); }

inline float grid_exp(float x) { return static_cast<float>(std::exp(static_cast<double>(x))); }

// The box of the prediction at `x` in cell (column, row).
inline CenterBox decode_grid_box(const float* x, int64_t column, int64_t row, int64_t side, const float* anchor,
                                 float divisor) {
    const auto cells = static_cast<float>(side);
    return {(static_cast<float>(column) + grid_sigmoid(x[0])) / cells,
            (static_cast<float>(row) + grid_sigmoid(x[1])) / cells, grid_exp(x[2]) * anchor[0] / divisor,
            grid_exp(x[3]) * anchor[1] / divisor};
}

// Area in common / area of both together.
inline float center_overlap(const CenterBox& a, const CenterBox& b) {
    const float left = std::max(a.x - a.width * 0.5f, b.x - b.width * 0.5f);
    const float right = std::min(a.x + a.width * 0.5f, b.x + b.width * 0.5f);
    const float top = std::max(a.y - a.height * 0.5f, b.y - b.height * 0.5f);
    const float bottom = std::min(a.y + a.height * 0.5f, b.y + b.height * 0.5f);
    const float width = right - left, height = bottom - top;
    if (!(width > 0 && height > 0)) return 0;
    const float common = width * height;
    return common / (a.width * a.height + b.width * b.height - common);
}

}  // namespace layermem::cpu
