// True boxes of grids of predictions: they are data, and are checked when a launch runs.
#include "cpu/kernels/yolo_truth.h"

#include <cstdio>
#include <stdexcept>

namespace layermem::cpu {

int64_t count_true_boxes(int64_t rows, const float* truth) {
    int64_t count = 0;
    while (count < rows && truth[count * kGridTruth + 3] != 0) ++count;
    return count;
}

void check_true_boxes(int64_t items, int64_t rows, int64_t classes, const float* truth) {
    for (int64_t n = 0; n < items; ++n, truth += rows * kGridTruth) {
        for (int64_t r = 0; r < count_true_boxes(rows, truth); ++r) {
            const float* row = truth + r * kGridTruth;
            const CenterBox box = true_box(row);
            char text[320];
            const bool sized = std::isfinite(box.width) && std::isfinite(box.height) && box.width > 0 && box.height > 0;
            if (!sized || !(box.x >= 0 && box.x < 1 && box.y >= 0 && box.y < 1)) {
                std::snprintf(text, sizeof text,
                              "reads a true box of item %lld with its center at %.9g, %.9g and of size %.9g x %.9g; "
                              "centers are from 0 up to, but not including, 1, and sizes above 0, or a width of 0 "
                              "behind the last box",
                              static_cast<long long>(n), static_cast<double>(box.x), static_cast<double>(box.y),
                              static_cast<double>(box.width), static_cast<double>(box.height));
                throw std::invalid_argument(text);
            }
            if (!(row[0] > -1 && row[0] < static_cast<float>(classes))) {
                std::snprintf(text, sizeof text, "reads a true box of label %.9g, but has %lld classes: 0 to %lld",
                              static_cast<double>(row[0]), static_cast<long long>(classes),
                              static_cast<long long>(classes - 1));
                throw std::invalid_argument(text);
            }
        }
    }
}

}  // namespace layermem::cpu
