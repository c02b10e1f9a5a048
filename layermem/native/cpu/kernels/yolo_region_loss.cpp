// A task is an item, in forward and in backward; the sums of the items are added in their order.
//
// Workspace of an item: `owner` [side side anchors] the true box that a prediction has, or -1, and `d` [5 + classes]
// of one prediction.
#include "cpu/kernels/yolo_region_loss.h"

#include <stdexcept>

#include "cpu/kernels/registry.h"
#include "cpu/kernels/yolo_boxes.h"
#include "cpu/kernels/yolo_truth.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

constexpr double kWarmUpScale = 0.01;

int64_t anchors_of(const RegionProblem& p) { return static_cast<int64_t>(p.anchors.size()) / 2; }
int64_t numbers_of(const RegionProblem& p) { return kGridBox + p.classes; }
int64_t predictions_of(const RegionProblem& p) { return p.side * p.side * anchors_of(p); }
int64_t sum_bytes(const RegionProblem& p) { return aligned_bytes<double>(p.items); }
int64_t owner_bytes(const RegionProblem& p) { return aligned_bytes<int32_t>(predictions_of(p)); }
int64_t item_bytes(const RegionProblem& p) { return owner_bytes(p) + aligned_bytes<double>(numbers_of(p)); }

void check(const RegionProblem& p) {
    if (p.items < 1 || p.side < 1 || p.classes < 1 || p.rows < 1 || p.anchors.empty() || p.anchors.size() % 2)
        throw std::invalid_argument("region_loss: every size must be at least 1");
}

struct Item {
    const RegionProblem& p;
    const float* x;
    const float* truth;
    int32_t* owner;
    double* d;
    bool warm;

    int64_t rows() const { return count_true_boxes(p.rows, truth); }

    // Gives each true box the prediction that has to find it.
    void match() const {
        const int64_t anchors = anchors_of(p);
        const auto cells = static_cast<float>(p.side);
        std::fill(owner, owner + predictions_of(p), -1);
        for (int64_t r = 0; r < rows(); ++r) {
            CenterBox box = true_box(truth + r * kGridTruth);
            const auto column = static_cast<int64_t>(box.x * cells), line = static_cast<int64_t>(box.y * cells);
            const int64_t first = (line * p.side + column) * anchors;
            box.x = box.y = 0;
            int64_t best = 0;
            float share = 0;
            for (int64_t k = 0; k < anchors; ++k) {
                const float* anchor = p.anchors.data() + 2 * k;
                const float* size = x + (first + k) * numbers_of(p) + 2;
                const CenterBox shape = p.bias_match ? CenterBox{0, 0, anchor[0] / cells, anchor[1] / cells}
                                                     : CenterBox{0, 0, grid_exp(size[0]) * anchor[0] / cells,
                                                                 grid_exp(size[1]) * anchor[1] / cells};
                const float each = center_overlap(shape, box);
                if (each > share) {
                    share = each;
                    best = k;
                }
            }
            owner[first + best] = static_cast<int32_t>(r);
        }
    }

    // Writes d of prediction `i`, and returns the sum of its squares.
    double gradient(int64_t i, int64_t boxes) const {
        const int64_t numbers = numbers_of(p), cell = i / anchors_of(p);
        const int64_t column = cell % p.side, line = cell / p.side;
        const float* at = x + i * numbers;
        const float* anchor = p.anchors.data() + i % anchors_of(p) * 2;
        const CenterBox box = decode_grid_box(at, column, line, p.side, anchor, static_cast<float>(p.side));
        const double center[2] = {grid_sigmoid(at[0]), grid_sigmoid(at[1])};
        const double objectness = grid_sigmoid(at[4]), slope = objectness * (1 - objectness);
        std::fill(d, d + numbers, 0.0);
        bool background = true;
        for (int64_t r = 0; r < boxes && background; ++r)
            background = !(center_overlap(box, true_box(truth + r * kGridTruth)) > p.threshold);
        if (background) d[4] = static_cast<double>(p.noobject_scale) * objectness * slope;
        if (warm) {
            for (int k = 0; k < 2; ++k) {
                d[k] = -kWarmUpScale * (0.5 - center[k]) * center[k] * (1 - center[k]);
                d[k + 2] = kWarmUpScale * static_cast<double>(at[k + 2]);
            }
        }
        const double origin[2] = {static_cast<double>(column), static_cast<double>(line)};
        if (owner[i] >= 0) find(truth + owner[i] * kGridTruth, at, anchor, box, center, origin);
        double sum = 0;
        for (int64_t k = 0; k < numbers; ++k) sum += d[k] * d[k];
        return sum;
    }

    // Writes d of the prediction at `at`, which has the true box `row`; origin: its cell.
    void find(const float* row, const float* at, const float* anchor, const CenterBox& box, const double* center,
              const double* origin) const {
        const auto side = static_cast<double>(p.side);
        double scale = static_cast<double>(p.coord_scale);
        if (!p.rescore) scale *= 2 - static_cast<double>(row[3]) * static_cast<double>(row[4]);
        for (int k = 0; k < 2; ++k) {
            const double target = static_cast<double>(row[k + 1]) * side - origin[k];
            d[k] = -scale * (target - center[k]) * center[k] * (1 - center[k]);
            const double size = std::log(static_cast<double>(row[k + 3]) * side / static_cast<double>(anchor[k]));
            d[k + 2] = -scale * (size - static_cast<double>(at[k + 2]));
        }
        const double objectness = grid_sigmoid(at[4]);
        const double target = p.rescore ? static_cast<double>(center_overlap(box, true_box(row))) : 1.0;
        d[4] = -static_cast<double>(p.object_scale) * (target - objectness) * objectness * (1 - objectness);
        const float* scores = at + kGridBox;
        const auto largest = static_cast<double>(*std::max_element(scores, scores + p.classes));
        double sum = 0;
        for (int64_t c = 0; c < p.classes; ++c) {
            d[kGridBox + c] = std::exp(static_cast<double>(scores[c]) - largest);
            sum += d[kGridBox + c];
        }
        const auto label = static_cast<int64_t>(row[0]);
        for (int64_t c = 0; c < p.classes; ++c)
            d[kGridBox + c] = static_cast<double>(p.class_scale) * (d[kGridBox + c] / sum - (c == label ? 1.0 : 0.0));
    }
};

Item item_of(const RegionProblem& p, int64_t n, const float* x, const float* truth, char* items, uint64_t step) {
    char* at = items + n * item_bytes(p);
    return {p,
            x + n * predictions_of(p) * numbers_of(p),
            truth + n * p.rows * kGridTruth,
            reinterpret_cast<int32_t*>(at),
            reinterpret_cast<double*>(at + owner_bytes(p)),
            step < p.warm_up};
}

}  // namespace

int64_t region_loss_workspace_bytes(const RegionProblem& p) {
    check(p);
    return sum_bytes(p) + p.items * item_bytes(p);
}

StepLaunch region_loss_forward(const RegionProblem& p, float* loss, const float* x, const float* truth,
                               void* workspace) {
    check(p);
    auto* sums = static_cast<double*>(workspace);
    char* items = static_cast<char*>(workspace) + sum_bytes(p);
    return [=](uint64_t step) {
        check_true_boxes(p.items, p.rows, p.classes, truth);
        parallel_for(p.items, [&](int64_t n) {
            const Item item = item_of(p, n, x, truth, items, step);
            item.match();
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

StepLaunch region_loss_backward(const RegionProblem& p, float* dx, const float* dloss, const float* x,
                                const float* truth, bool accumulate, void* workspace) {
    check(p);
    char* items = static_cast<char*>(workspace) + sum_bytes(p);
    return [=](uint64_t step) {
        check_true_boxes(p.items, p.rows, p.classes, truth);
        const double rate = static_cast<double>(*dloss) / static_cast<double>(p.items);
        const int64_t numbers = numbers_of(p), predictions = predictions_of(p);
        parallel_for(p.items, [&](int64_t n) {
            const Item item = item_of(p, n, x, truth, items, step);
            item.match();
            const int64_t boxes = item.rows();
            float* out = dx + n * predictions * numbers;
            for (int64_t i = 0; i < predictions; ++i, out += numbers) {
                item.gradient(i, boxes);
                for (int64_t k = 0; k < numbers; ++k) {
                    const auto value = static_cast<float>(rate * item.d[k]);
                    out[k] = accumulate ? out[k] + value : value;
                }
            }
        });
    };
}

LAYERMEM_KERNEL(region_loss_workspace_bytes)
LAYERMEM_KERNEL(region_loss_forward)
LAYERMEM_KERNEL(region_loss_backward)

}  // namespace layermem::cpu
