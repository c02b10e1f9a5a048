// Runs in one thread: only tests of a net run it, on some hundreds of boxes of an item.  Workspace: `order`
// [detections] of the rows that hold a box, by item, class and score, and `taken` [truths].
#include "cpu/kernels/detection_evaluate.h"

#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "cpu/kernels/registry.h"

namespace layermem::cpu {
namespace {

constexpr int64_t kTruth = 8, kEvaluation = 5, kItemSize = 6;  // floats of a row

int64_t order_bytes(const EvaluationProblem& p) { return aligned_bytes<int32_t>(p.detections); }

void check(const EvaluationProblem& p) {
    if (p.detections < 0 || p.truths < 0 || p.classes < 1)
        throw std::invalid_argument("detection_evaluate: every size must be at least 1");
}

void check_row(const EvaluationProblem& p, const float* row, int64_t floats, const char* what) {
    bool good = row[1] > -1 && row[1] < static_cast<float>(p.classes);
    for (int64_t i = 0; i < floats; ++i) good = good && std::isfinite(row[i]);
    if (good && static_cast<int64_t>(row[1]) != p.background) return;
    char text[200];
    std::snprintf(text, sizeof text,
                  "reads a %s of label %.9g from %.9g, %.9g to %.9g, %.9g, but has %lld classes: 0 to %lld without the "
                  "background, %lld",
                  what, static_cast<double>(row[1]), static_cast<double>(row[3]), static_cast<double>(row[4]),
                  static_cast<double>(row[5]), static_cast<double>(row[6]), static_cast<long long>(p.classes),
                  static_cast<long long>(p.classes - 1), static_cast<long long>(p.background));
    throw std::invalid_argument(text);
}

bool of_one(const float* a, const float* b) {  // item and class
    return static_cast<int64_t>(a[0]) == static_cast<int64_t>(b[0]) &&
           static_cast<int64_t>(a[1]) == static_cast<int64_t>(b[1]);
}

Box box_of(const float* row) { return {row[3], row[4], row[5], row[6]}; }

// The box of an item in pixels of its image, clipped to it.
Box in_pixels(const Box& box, const float* size) {
    const auto scaled = [&](float at, int axis) {
        const float low = size[axis], high = size[2 + axis], pixels = size[4 + axis];
        return std::min(std::max((at - low) / (high - low), 0.0f), 1.0f) * pixels;
    };
    return {scaled(box.left, 0), scaled(box.top, 1), scaled(box.right, 0), scaled(box.bottom, 1)};
}

float pixels_of(const Box& box) {  // both ends count
    const float width = box.right - box.left, height = box.bottom - box.top;
    return width >= 0 && height >= 0 ? (width + 1) * (height + 1) : 0;
}

// The overlap of boxes in pixels, both of whose ends count; box_overlap is that of fractions of images.
float pixel_overlap(const Box& a, const Box& b) {
    const float common = pixels_of(
        {std::max(a.left, b.left), std::max(a.top, b.top), std::min(a.right, b.right), std::min(a.bottom, b.bottom)});
    return common > 0 ? common / (pixels_of(a) + pixels_of(b) - common) : 0;
}

void check_item(const EvaluationProblem& p, const float* row) {
    if (p.sized_items == 0 || (row[0] >= 0 && row[0] < static_cast<float>(p.sized_items))) return;
    char text[100];
    std::snprintf(text, sizeof text, "reads a detection outside of its %lld items",
                  static_cast<long long>(p.sized_items));
    throw std::invalid_argument(text);
}

float* put(float* y, float item, float label, float score, float right, float wrong) {
    const float row[kEvaluation] = {item, label, score, right, wrong};
    std::memcpy(y, row, sizeof row);
    return y + kEvaluation;
}

}  // namespace

int64_t detection_evaluate_workspace_bytes(const EvaluationProblem& p) {
    check(p);
    return order_bytes(p) + aligned_bytes<uint8_t>(p.truths);
}

Launch detection_evaluate(const EvaluationProblem& p, float* y, const float* detections, const float* truth,
                          const float* sizes, void* workspace) {
    check(p);
    auto* order = static_cast<int32_t*>(workspace);
    auto* taken = reinterpret_cast<uint8_t*>(static_cast<char*>(workspace) + order_bytes(p));
    return [=] {
        const auto found = [&](int32_t i) { return detections + i * kDetection; };
        const auto counts = [&](const float* row) { return p.difficult || row[7] == 0; };
        int64_t boxes = 0;
        for (int32_t i = 0; i < p.detections; ++i) {
            if (found(i)[0] == -1) continue;
            check_row(p, found(i), kDetection, "detection");
            check_item(p, found(i));
            order[boxes++] = i;
        }
        for (int64_t r = 0; r < p.truths; ++r)
            if (truth[r * kTruth] != -1) check_row(p, truth + r * kTruth, kTruth, "true box");
        float* out = y;
        for (int64_t c = 0; c < p.classes; ++c) {
            if (c == p.background) continue;
            int64_t count = 0;
            for (int64_t r = 0; r < p.truths; ++r) {
                const float* row = truth + r * kTruth;
                count += row[0] != -1 && static_cast<int64_t>(row[1]) == c && counts(row);
            }
            out = put(out, -1, static_cast<float>(c), static_cast<float>(count), -1, -1);
        }
        std::sort(order, order + boxes, [&](int32_t i, int32_t j) {
            const float *a = found(i), *b = found(j);
            for (int k = 0; k < 2; ++k)
                if (static_cast<int64_t>(a[k]) != static_cast<int64_t>(b[k])) return a[k] < b[k];
            return a[2] > b[2] || (a[2] == b[2] && i < j);
        });
        std::fill(taken, taken + p.truths, uint8_t{0});
        for (int64_t n = 0; n < boxes; ++n) {
            const float* row = found(order[n]);
            int64_t best = -1;
            float most = -1;
            for (int64_t r = 0; r < p.truths; ++r) {
                const float* box = truth + r * kTruth;
                if (box[0] == -1 || !of_one(row, box)) continue;
                const float* size = p.sized_items ? sizes + static_cast<int64_t>(row[0]) * kItemSize : nullptr;
                const float overlap = size ? pixel_overlap(in_pixels(box_of(row), size), in_pixels(box_of(box), size))
                                           : box_overlap(box_of(row), box_of(box));
                if (overlap > most) {
                    most = overlap;
                    best = r;
                }
            }
            const bool hit = best >= 0 && most >= p.overlap_threshold;
            const bool counted = !hit || counts(truth + best * kTruth);
            const bool right = hit && counted && !taken[best];
            if (right) taken[best] = 1;
            out = put(out, std::trunc(row[0]), std::trunc(row[1]), row[2], right ? 1.0f : 0.0f,
                      counted && !right ? 1.0f : 0.0f);
        }
        std::fill(out, y + p.rows * kEvaluation, -1.0f);
    };
}

LAYERMEM_KERNEL(detection_evaluate_workspace_bytes)
LAYERMEM_KERNEL(detection_evaluate)

}  // namespace layermem::cpu
