// A task is an item.  It writes its rows where they would lie if every item had as many as planned; afterwards the rows
// of all items are moved together.
//
// Workspace of an item: `order` [priors] of a class by score, `decoded` [priors] boxes, and `found` [classes
// candidates], the boxes that stay, by class and score.
#include "cpu/kernels/detection_output.h"

#include <cstring>
#include <stdexcept>

#include "cpu/kernels/registry.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

struct Found {
    float score;
    int32_t number;  // in the order of classes and scores
    int32_t label;
    Box box;
};

int64_t counts_bytes(const DetectionProblem& p) { return aligned_bytes<int64_t>(p.items); }
int64_t order_bytes(const DetectionProblem& p) { return aligned_bytes<int32_t>(p.priors); }
int64_t decoded_bytes(const DetectionProblem& p) { return aligned_bytes<Box>(p.priors); }
int64_t item_bytes(const DetectionProblem& p) {
    return order_bytes(p) + decoded_bytes(p) + aligned_bytes<Found>(p.classes * p.candidates);
}

void check(const DetectionProblem& p) {
    if (p.items < 1 || p.priors < 1 || p.classes < 1 || p.candidates < 0 || p.of_item < 0 ||
        (p.loc_classes != 1 && p.loc_classes != p.classes))
        throw std::invalid_argument("detection_output: every size must be at least 1");
}

// Writes the rows of item `n`, and returns how many.
int64_t detect(const DetectionProblem& p, int64_t n, float* y, const float* locations, const float* scores,
               const float* boxes, char* workspace) {
    auto* order = reinterpret_cast<int32_t*>(workspace);
    auto* decoded = reinterpret_cast<Box*>(workspace + order_bytes(p));
    auto* found = reinterpret_cast<Found*>(workspace + order_bytes(p) + decoded_bytes(p));
    const auto decode = [&](int64_t c) {
        for (int64_t i = 0; i < p.priors; ++i) {
            const float* prior = boxes + i * 4;
            decoded[i] = decode_box(p.coder, {prior[0], prior[1], prior[2], prior[3]}, prior + p.priors * 4,
                                    locations + (i * p.loc_classes + c) * 4);
            if (p.clip) decoded[i] = clipped(decoded[i]);
        }
    };
    if (p.loc_classes == 1) decode(0);
    int64_t count = 0;
    for (int64_t c = 0; c < p.classes; ++c) {
        if (c == p.background) continue;
        if (p.loc_classes > 1) decode(c);
        const auto score = [&](int64_t i) { return scores[i * p.classes + c]; };
        int64_t candidates = 0;
        for (int64_t i = 0; i < p.priors; ++i)
            if (score(i) > p.least_score) order[candidates++] = static_cast<int32_t>(i);
        const int64_t sorted = std::min(candidates, p.candidates);
        std::partial_sort(order, order + sorted, order + candidates,
                          [&](int32_t a, int32_t b) { return score(a) > score(b) || (score(a) == score(b) && a < b); });
        const int64_t first = count;
        float threshold = p.threshold;
        for (int64_t k = 0; k < sorted; ++k) {
            const Box& box = decoded[order[k]];
            bool keep = true;
            for (int64_t f = first; f < count && keep; ++f) keep = box_overlap(box, found[f].box) <= threshold;
            if (!keep) continue;
            found[count] = {score(order[k]), static_cast<int32_t>(count), static_cast<int32_t>(c), box};
            ++count;
            if (p.eta < 1 && threshold > 0.5f) threshold *= p.eta;
        }
    }
    if (count > p.of_item) {
        std::partial_sort(found, found + p.of_item, found + count, [](const Found& a, const Found& b) {
            return a.score > b.score || (a.score == b.score && a.number < b.number);
        });
        count = p.of_item;
        std::sort(found, found + count, [](const Found& a, const Found& b) { return a.number < b.number; });
    }
    for (int64_t f = 0; f < count; ++f, y += kDetection) {
        const Box& box = found[f].box;
        const float row[kDetection] = {static_cast<float>(n),
                                       static_cast<float>(found[f].label),
                                       found[f].score,
                                       box.left,
                                       box.top,
                                       box.right,
                                       box.bottom};
        std::memcpy(y, row, sizeof row);
    }
    return count;
}

}  // namespace

int64_t detection_output_workspace_bytes(const DetectionProblem& p) {
    check(p);
    return counts_bytes(p) + p.items * item_bytes(p);
}

Launch detection_output(const DetectionProblem& p, float* y, const float* locations, const float* scores,
                        const float* boxes, void* workspace) {
    check(p);
    auto* counts = static_cast<int64_t*>(workspace);
    char* items = static_cast<char*>(workspace) + counts_bytes(p);
    return [=] {
        const int64_t row = p.of_item * kDetection;
        parallel_for(p.items, [&](int64_t n) {
            counts[n] = detect(p, n, y + n * row, locations + n * p.priors * p.loc_classes * 4,
                               scores + n * p.priors * p.classes, boxes, items + n * item_bytes(p));
        });
        join_detections(y, counts, p.items, row);
    };
}

LAYERMEM_KERNEL(detection_output_workspace_bytes)
LAYERMEM_KERNEL(detection_output)

}  // namespace layermem::cpu
