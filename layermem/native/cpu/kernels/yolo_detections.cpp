// A task is an item.  It writes its rows where they would lie if every prediction of every item made one; afterwards
// the rows of all items are moved together.
//
// Workspace of an item: `found` [predictions], the boxes with a score; the boxes that stay are moved to its front.
#include "cpu/kernels/yolo_detections.h"

#include <cstring>
#include <stdexcept>

#include "cpu/kernels/boxes.h"
#include "cpu/kernels/registry.h"
#include "cpu/kernels/yolo_boxes.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

struct Found {
    float score;
    int32_t number;  // of the prediction
    int32_t label;
    CenterBox box;
};

int64_t anchors_of(const GridProblem& p, size_t t) { return static_cast<int64_t>(p.anchors[t].size()) / 2; }

int64_t predictions_of(const GridProblem& p) {
    int64_t count = 0;
    for (size_t t = 0; t < p.sides.size(); ++t) count += p.sides[t] * p.sides[t] * anchors_of(p, t);
    return count;
}

int64_t counts_bytes(const GridProblem& p) { return aligned_bytes<int64_t>(p.items); }
int64_t item_bytes(const GridProblem& p) { return aligned_bytes<Found>(predictions_of(p)); }

void check(const GridProblem& p) {
    if (p.items < 1 || p.classes < 1 || p.sides.empty() || p.anchors.size() != p.sides.size() ||
        p.divisors.size() != p.sides.size())
        throw std::invalid_argument("grid_detections: every size must be at least 1");
}

// The score of the best class `label` at `x`.
float score_of(const GridProblem& p, const float* x, int64_t label) {
    const float* scores = x + kGridBox;
    if (!p.softmax) return grid_sigmoid(scores[label]) * grid_sigmoid(x[4]);
    double sum = 0;
    for (int64_t c = 0; c < p.classes; ++c)
        sum += std::exp(static_cast<double>(scores[c]) - static_cast<double>(scores[label]));
    return static_cast<float>(1 / sum) * grid_sigmoid(x[4]);
}

// Finds the boxes of item `n` that have a score, and returns how many.
int64_t decode(const GridProblem& p, int64_t n, const std::vector<const float*>& xs, Found* found) {
    const int64_t numbers = kGridBox + p.classes;
    int64_t count = 0;
    int32_t number = 0;
    for (size_t t = 0; t < p.sides.size(); ++t) {
        const int64_t side = p.sides[t], anchors = anchors_of(p, t), predictions = side * side * anchors;
        const float* x = xs[t] + n * predictions * numbers;
        for (int64_t i = 0; i < predictions; ++i, x += numbers, ++number) {
            const int64_t label = std::max_element(x + kGridBox, x + numbers) - (x + kGridBox);
            const float score = score_of(p, x, label);
            if (!(p.softmax ? score >= p.least_score : score > p.least_score)) continue;
            const int64_t cell = i / anchors;
            found[count++] = {
                score, number, static_cast<int32_t>(label + 1),
                decode_grid_box(x, cell % side, cell / side, side, &p.anchors[t][i % anchors * 2], p.divisors[t])};
        }
    }
    return count;
}

// Writes the rows of item `n`, and returns how many.
int64_t detect(const GridProblem& p, int64_t n, float* y, const std::vector<const float*>& xs, Found* found) {
    const int64_t candidates = decode(p, n, xs, found);
    std::sort(found, found + candidates, [](const Found& a, const Found& b) {
        return a.score > b.score || (a.score == b.score && a.number < b.number);
    });
    int64_t count = 0;
    for (int64_t i = 0; i < candidates; ++i) {
        bool keep = true;
        for (int64_t k = 0; k < count && keep; ++k) keep = !(center_overlap(found[i].box, found[k].box) >= p.threshold);
        if (keep) found[count++] = found[i];
    }
    for (int64_t i = 0; i < count; ++i, y += kDetection) {
        const CenterBox& box = found[i].box;
        const float row[kDetection] = {
            static_cast<float>(n),    static_cast<float>(found[i].label), found[i].score,
            box.x - box.width * 0.5f, box.y - box.height * 0.5f,          box.x + box.width * 0.5f,
            box.y + box.height * 0.5f};
        std::memcpy(y, row, sizeof row);
    }
    return count;
}

}  // namespace

int64_t grid_detections_workspace_bytes(const GridProblem& p) {
    check(p);
    return counts_bytes(p) + p.items * item_bytes(p);
}

Launch grid_detections(const GridProblem& p, float* y, const std::vector<const float*>& xs, void* workspace) {
    check(p);
    if (xs.size() != p.sides.size()) throw std::invalid_argument("grid_detections: one bottom for each grid");
    auto* counts = static_cast<int64_t*>(workspace);
    char* items = static_cast<char*>(workspace) + counts_bytes(p);
    return [=] {
        const int64_t row = predictions_of(p) * kDetection;
        parallel_for(p.items, [&](int64_t n) {
            counts[n] = detect(p, n, y + n * row, xs, reinterpret_cast<Found*>(items + n * item_bytes(p)));
        });
        join_detections(y, counts, p.items, row);
    };
}

LAYERMEM_KERNEL(grid_detections_workspace_bytes)
LAYERMEM_KERNEL(grid_detections)

}  // namespace layermem::cpu
