// A task is an item, in forward and in backward; the sums of the items are added in their order.
//
// Workspace of an item: `match` [rows] the prediction that a true box takes, or -1, `owner` [predictions] the last true
// box that takes it, or -1, and `d` [5 + classes] of one prediction.
#include "cpu/kernels/yolo_loss.h"

#include <stdexcept>

#include "cpu/kernels/registry.h"
#include "cpu/kernels/yolo_boxes.h"
#include "cpu/kernels/yolo_truth.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

int64_t anchors_of(const GridLossProblem& p) { return static_cast<int64_t>(p.mask.size()); }
int64_t numbers_of(const GridLossProblem& p) { return kGridBox + p.classes; }
int64_t predictions_of(const GridLossProblem& p) { return p.side * p.side * anchors_of(p); }
int64_t sum_bytes(const GridLossProblem& p) { return aligned_bytes<double>(p.items); }
int64_t match_bytes(const GridLossProblem& p) { return aligned_bytes<int32_t>(p.rows); }
int64_t owner_bytes(const GridLossProblem& p) { return aligned_bytes<int32_t>(predictions_of(p)); }

int64_t item_bytes(const GridLossProblem& p) {
    return match_bytes(p) + owner_bytes(p) + aligned_bytes<double>(numbers_of(p));
}

void check(const GridLossProblem& p) {
    if (p.items < 1 || p.side < 1 || p.classes < 1 || p.rows < 1 || p.mask.empty() || p.anchors.size() % 2)
        throw std::invalid_argument("grid_loss: every size must be at least 1");
    for (const int64_t m : p.mask)
        if (m < 0 || 2 * m >= static_cast<int64_t>(p.anchors.size()))
            throw std::invalid_argument("grid_loss: a mask names no anchor");
}

struct Item {
    const GridLossProblem& p;
    const float* x;
    const float* truth;
    int32_t* match;
    int32_t* owner;
    double* d;

    int64_t rows() const { return count_true_boxes(p.rows, truth); }

    // The index in the mask of the anchor that is most like a box; -1 if another grid has this anchor.
    int64_t anchor_of(CenterBox box) const {
        box.x = box.y = 0;
        int64_t best = -1;
        float share = 0;
        for (size_t a = 0; a < p.anchors.size(); a += 2) {
            const float each = center_overlap({0, 0, p.anchors[a] / p.divisor, p.anchors[a + 1] / p.divisor}, box);
            if (each > share) {
                share = each;
                best = static_cast<int64_t>(a / 2);
            }
        }
        const auto at = std::find(p.mask.begin(), p.mask.end(), best);
        return at == p.mask.end() ? -1 : at - p.mask.begin();
    }

    // Gives each true box of this grid the prediction that has to find it.
    void find_matches() const {
        const auto cells = static_cast<float>(p.side);
        std::fill(owner, owner + predictions_of(p), -1);
        for (int64_t r = 0; r < rows(); ++r) {
            const CenterBox box = true_box(truth + r * kGridTruth);
            const auto column = static_cast<int64_t>(box.x * cells), line = static_cast<int64_t>(box.y * cells);
            const int64_t k = anchor_of(box);
            match[r] = k < 0 ? -1 : static_cast<int32_t>((line * p.side + column) * anchors_of(p) + k);
            if (k >= 0) owner[match[r]] = static_cast<int32_t>(r);
        }
    }

    // Writes d of prediction `i`, and returns the sum of its squares.
    double gradient(int64_t i, int64_t boxes) const {
        const int64_t numbers = numbers_of(p), cell = i / anchors_of(p);
        const int64_t column = cell % p.side, line = cell / p.side;
        const float* at = x + i * numbers;
        const float* anchor = p.anchors.data() + 2 * p.mask[static_cast<size_t>(i % anchors_of(p))];
        std::fill(d, d + numbers, 0.0);
        const double objectness = grid_sigmoid(at[4]);
        if (owner[i] >= 0) {
            const float* row = truth + owner[i] * kGridTruth;
            const double origin[2] = {static_cast<double>(column), static_cast<double>(line)};
            const double area = static_cast<double>(row[3]) * static_cast<double>(row[4]);
            const double scale = static_cast<double>(p.coord_scale) * (2 - area);
            for (int k = 0; k < 2; ++k) {
                const double target = static_cast<double>(row[k + 1]) * static_cast<double>(p.side) - origin[k];
                d[k] = -scale * (target - static_cast<double>(grid_sigmoid(at[k])));
                const double size = static_cast<double>(row[k + 3]) * static_cast<double>(p.divisor);
                d[k + 2] = -scale * (std::log(size / static_cast<double>(anchor[k])) - static_cast<double>(at[k + 2]));
            }
            d[4] = (objectness - 1) * (p.logistic ? static_cast<double>(p.object_scale) : 1.0);
            for (int64_t k = kGridBox; k < numbers; ++k) d[k] = static_cast<double>(grid_sigmoid(at[k]));
            for (int64_t r = 0; r < boxes; ++r) {
                const int64_t k = kGridBox + static_cast<int64_t>(truth[r * kGridTruth]);
                if (match[r] == i) d[k] = static_cast<double>(grid_sigmoid(at[k])) - 1;
            }
            for (int64_t k = kGridBox; k < numbers; ++k) d[k] *= static_cast<double>(p.class_scale);
        } else {
            const CenterBox box = decode_grid_box(at, column, line, p.side, anchor, p.divisor);
            bool background = true;
            for (int64_t r = 0; r < boxes && background; ++r)
                background = !(center_overlap(box, true_box(truth + r * kGridTruth)) > p.threshold);
            if (background) d[4] = objectness;
        }
        double sum = 0;
        for (int64_t k = 0; k < numbers; ++k) sum += d[k] * d[k];
        return sum;
    }

    // The derivative of value `k` of a prediction.
    double slope(float at, int64_t k) const {
        if (!p.logistic || k == 2 || k == 3) return 1;
        const double value = grid_sigmoid(at);
        return value * (1 - value);
    }
};

Item item_of(const GridLossProblem& p, int64_t n, const float* x, const float* truth, char* items) {
    char* at = items + n * item_bytes(p);
    return {p,
            x + n * predictions_of(p) * numbers_of(p),
            truth + n * p.rows * kGridTruth,
            reinterpret_cast<int32_t*>(at),
            reinterpret_cast<int32_t*>(at + match_bytes(p)),
            reinterpret_cast<double*>(at + match_bytes(p) + owner_bytes(p))};
}

}  // namespace

int64_t grid_loss_workspace_bytes(const GridLossProblem& p) {
    check(p);
    return sum_bytes(p) + p.items * item_bytes(p);
}

Launch grid_loss_forward(const GridLossProblem& p, float* loss, const float* x, const float* truth, void* workspace) {
    check(p);
    auto* sums = static_cast<double*>(workspace);
    char* items = static_cast<char*>(workspace) + sum_bytes(p);
    return [=] {
        check_true_boxes(p.items, p.rows, p.classes, truth);
        parallel_for(p.items, [&](int64_t n) {
            const Item item = item_of(p, n, x, truth, items);
            item.find_matches();
            const int64_t boxes = item.rows();
            double sum = 0;
            for (int64_t i = 0; i < predictions_of(p); ++i) sum += item.gradient(i, boxes);
            sums[n] = sum;
        });
        double sum = 0;
        for (int64_t n = 0; n < p.items; ++n) sum += sums[n];
        *loss = static_cast<float>(sum / static_cast<double>(p.items));
    };
}

Launch grid_loss_backward(const GridLossProblem& p, float* dx, const float* dloss, const float* x, const float* truth,
                          bool accumulate, void* workspace) {
    check(p);
    char* items = static_cast<char*>(workspace) + sum_bytes(p);
    return [=] {
        check_true_boxes(p.items, p.rows, p.classes, truth);
        const double rate = static_cast<double>(*dloss) / static_cast<double>(p.items);
        const int64_t numbers = numbers_of(p), predictions = predictions_of(p);
        parallel_for(p.items, [&](int64_t n) {
            const Item item = item_of(p, n, x, truth, items);
            item.find_matches();
            const int64_t boxes = item.rows();
            for (int64_t i = 0; i < predictions; ++i) {
                item.gradient(i, boxes);
                const float* in = item.x + i * numbers;
                float* out = dx + (n * predictions + i) * numbers;
                for (int64_t k = 0; k < numbers; ++k) {
                    const auto value = static_cast<float>(rate * item.d[k] * item.slope(in[k], k));
                    out[k] = accumulate ? out[k] + value : value;
                }
            }
        });
    };
}

LAYERMEM_KERNEL(grid_loss_workspace_bytes)
LAYERMEM_KERNEL(grid_loss_forward)
LAYERMEM_KERNEL(grid_loss_backward)

}  // namespace layermem::cpu
