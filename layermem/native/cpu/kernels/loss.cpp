// Forward sums partial losses; backward scales the gradient by dloss / divisor, which is known only when the launch
// runs.  A task is a range of elements, or of as many items as have about that many elements.
//
// Formulas are in microkernels/loss.h.  Partial losses are doubles, one per task, and are added in order of tasks, so
// that the loss does not depend on the number of threads (loss_partials.h).
#include "cpu/kernels/loss.h"

#include <stdexcept>

#include "cpu/kernels/loss_partials.h"
#include "cpu/kernels/registry.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

int64_t items_per_task(int64_t size) { return std::max<int64_t>(1, kLossTaskElements / size); }

// dloss is read when the launch runs: the loss weight may change between launches.
float gradient_scale(const float* dloss, double divisor) {
    return static_cast<float>(static_cast<double>(*dloss) / divisor);
}

void check(int64_t items, const ItemArgs& args) {
    if (items < 1 || args.classes < 1 || args.channels < 1 || args.classes % args.channels)
        throw std::invalid_argument("loss: classes must be a multiple of channels, and all sizes at least 1");
}

void check(int64_t items, const PairArgs& args) {
    if (items < 0 || args.size < 1) throw std::invalid_argument("loss: pairs need at least one element");
}

PairArgs pair_args(int64_t size, float* da, float* db, const float* a, const float* b, bool accumulate_da,
                   bool accumulate_db) {
    PairArgs args{};
    args.size = size;
    args.a = a;
    args.b = b;
    args.da = da;
    args.db = db;
    args.accumulate_da = accumulate_da;
    args.accumulate_db = accumulate_db;
    return args;
}

PairArgs contrastive_args(PairArgs args, const float* same, float margin, bool legacy) {
    args.same = same;
    args.margin = margin;
    args.legacy = legacy;
    return args;
}

// Sums the loss of a whole batch, or adds that of a slice.
template <class Kernel, class OnCopies>
void run_loss(const Kernel& kernel, const OnCopies& on_copies, const std::vector<LossInput>& inputs,
              const RowSlice& slice, int64_t step, int64_t classes, double divisor, float* loss, void* workspace,
              void* carry) {
    if (slice.is_whole()) return run_loss_partials(kernel, slice.count, step, classes, divisor, loss, workspace);
    run_loss_slice(kernel, on_copies, write_nothing, inputs, slice, step, classes, divisor, loss, carry);
}

}  // namespace

// An int64 per task of loss_divisor.
int64_t loss_divisor_bytes(int64_t count) { return aligned_bytes<int64_t>(ceil_div(count, kLossTaskElements)); }

// The divisor of a loss: a given one, the number of labels, or the number of labels that are not ignored (Caffe's
// normalization VALID), at least 1.  workspace: the valid labels of each task, added in order.
double loss_divisor(const Labels& labels, const CountedLabels& counted, void* workspace) {
    const int64_t count = counted.count;
    if (labels.divisor > 0) return labels.divisor;
    if (!labels.ignores) return static_cast<double>(std::max<int64_t>(1, count));
    auto* counts = static_cast<int64_t*>(workspace);
    parallel_for_ranges(count, kLossTaskElements, [&](int64_t begin, int64_t end) {
        int64_t valid = 0;
        for (int64_t i = begin; i < end; ++i) valid += label_class(counted.label[i]) != labels.ignore_label ? 1 : 0;
        counts[begin / kLossTaskElements] = valid;
    });
    int64_t valid = 0;
    for (int64_t i = 0; i < ceil_div(count, kLossTaskElements); ++i) valid += counts[i];
    return static_cast<double>(std::max<int64_t>(1, valid));
}

// -- SigmoidCrossEntropyLoss ------------------------------------------------------------------------------------------

// workspace: forward the partial losses, backward the counts of valid targets
int64_t sigmoid_loss_workspace_bytes(int64_t count) {
    return std::max(loss_partial_bytes(count, kLossTaskElements), loss_divisor_bytes(count));
}

int64_t sigmoid_loss_carry_bytes(int64_t count) { return loss_carry_bytes(count, kLossTaskElements, 2); }

Launch sigmoid_loss_forward(int64_t count, float* loss, const float* x, const float* target,
                            const std::optional<int64_t>& ignore_label, double divisor, OrNull<void> workspace,
                            int64_t first, int64_t of, void* carry) {
    const TargetArgs args{nullptr, x, labels_of(target, ignore_label, divisor), 0, false};
    const RowSlice elements = row_slice(count, first, of);
    return [=, &kernels = loss_kernels()] {
        const auto on_copies = [&](const std::vector<float*>& copies, int64_t copied_count, LossPartial& sum) {
            TargetArgs copied = args;
            copied.x = copies[0];
            copied.labels.label = copies[1];
            kernels.sigmoid_loss(copied, 0, copied_count, sum);
        };
        run_loss([&](int64_t begin, int64_t end, LossPartial& sum) { kernels.sigmoid_loss(args, begin, end, sum); },
                 on_copies, {{args.x, 1}, {args.labels.label, 1}}, elements, kLossTaskElements, 0, args.labels.divisor,
                 loss, workspace, carry);
    };
}

Launch sigmoid_loss_backward(int64_t count, float* dx, const float* x, const float* target, const float* dloss,
                             const std::optional<int64_t>& ignore_label, double divisor, bool accumulate,
                             OrNull<void> workspace, const float* counted, int64_t of) {
    const TargetArgs args{dx, x, labels_of(target, ignore_label, divisor), 0, accumulate};
    const CountedLabels counted_whole = counted_labels(target, count, counted, of);
    return [=, &kernels = loss_kernels()] {
        TargetArgs scaled = args;
        scaled.scale = gradient_scale(dloss, loss_divisor(args.labels, counted_whole, workspace));
        parallel_for_ranges(count, kLossTaskElements,
                            [&](int64_t begin, int64_t end) { kernels.sigmoid_loss_backward(scaled, begin, end); });
    };
}

// -- EuclideanLoss, ContrastiveLoss -----------------------------------------------------------------------------------

int64_t euclidean_loss_workspace_bytes(int64_t count) { return loss_partial_bytes(count, kLossTaskElements); }

int64_t euclidean_loss_carry_bytes(int64_t count) { return loss_carry_bytes(count, kLossTaskElements, 2); }

Launch euclidean_loss_forward(int64_t count, float* loss, const float* a, const float* b, double divisor,
                              OrNull<void> workspace, int64_t first, int64_t of, void* carry) {
    const PairArgs args = pair_args(1, nullptr, nullptr, a, b, false, false);
    const RowSlice elements = row_slice(count, first, of);
    check(count, args);
    return [=, &kernels = loss_kernels()] {
        const auto on_copies = [&](const std::vector<float*>& copies, int64_t copied_count, LossPartial& sum) {
            PairArgs copied = args;
            copied.a = copies[0];
            copied.b = copies[1];
            kernels.euclidean_loss(copied, 0, copied_count, sum);
        };
        run_loss([&](int64_t begin, int64_t end, LossPartial& sum) { kernels.euclidean_loss(args, begin, end, sum); },
                 on_copies, {{args.a, 1}, {args.b, 1}}, elements, kLossTaskElements, 0, divisor, loss, workspace,
                 carry);
    };
}

Launch euclidean_loss_backward(int64_t count, OrNull<float> da, OrNull<float> db, const float* a, const float* b,
                               const float* dloss, double divisor, bool accumulate_da, bool accumulate_db) {
    const PairArgs args = pair_args(1, da, db, a, b, accumulate_da, accumulate_db);
    check(count, args);
    return [=, &kernels = loss_kernels()] {
        PairArgs scaled = args;
        scaled.scale = gradient_scale(dloss, divisor);
        parallel_for_ranges(count, kLossTaskElements,
                            [&](int64_t begin, int64_t end) { kernels.euclidean_loss_backward(scaled, begin, end); });
    };
}

int64_t smooth_l1_loss_carry_bytes(int64_t count) { return loss_carry_bytes(count, kLossTaskElements, 4); }

Launch smooth_l1_loss_forward(int64_t count, float* loss, const float* a, const float* b, OrNull<const float> inside,
                              OrNull<const float> outside, float sigma, double divisor, OrNull<void> workspace,
                              int64_t first, int64_t of, void* carry) {
    const SmoothL1Args args{nullptr, nullptr, a, b, inside, outside, sigma * sigma, 0, false, false};
    const RowSlice elements = row_slice(count, first, of);
    return [=, &kernels = loss_kernels()] {
        const auto on_copies = [&](const std::vector<float*>& copies, int64_t copied_count, LossPartial& sum) {
            SmoothL1Args copied = args;
            copied.a = copies[0];
            copied.b = copies[1];
            copied.inside = copies[2];
            copied.outside = copies[3];
            kernels.smooth_l1_loss(copied, 0, copied_count, sum);
        };
        run_loss([&](int64_t begin, int64_t end, LossPartial& sum) { kernels.smooth_l1_loss(args, begin, end, sum); },
                 on_copies, {{args.a, 1}, {args.b, 1}, {args.inside, 1}, {args.outside, 1}}, elements,
                 kLossTaskElements, 0, divisor, loss, workspace, carry);
    };
}

Launch smooth_l1_loss_backward(int64_t count, OrNull<float> da, OrNull<float> db, const float* a, const float* b,
                               OrNull<const float> inside, OrNull<const float> outside, const float* dloss, float sigma,
                               double divisor, bool accumulate_da, bool accumulate_db) {
    const SmoothL1Args args{da, db, a, b, inside, outside, sigma * sigma, 0, accumulate_da, accumulate_db};
    return [=, &kernels = loss_kernels()] {
        SmoothL1Args scaled = args;
        scaled.scale = gradient_scale(dloss, divisor);
        parallel_for_ranges(count, kLossTaskElements,
                            [&](int64_t begin, int64_t end) { kernels.smooth_l1_loss_backward(scaled, begin, end); });
    };
}

// An item is a pair of rows of `size` elements, whose distance is one term of the loss.
int64_t contrastive_loss_workspace_bytes(int64_t items, int64_t size) {
    return loss_partial_bytes(items, items_per_task(size));
}

int64_t contrastive_loss_carry_bytes(int64_t items, int64_t size) {
    return loss_carry_bytes(items, items_per_task(size), 2 * size + 1);
}

Launch contrastive_loss_forward(int64_t items, int64_t size, float* loss, const float* a, const float* b,
                                const float* same, float margin, bool legacy, double divisor, OrNull<void> workspace,
                                int64_t first, int64_t of, void* carry) {
    const PairArgs args = contrastive_args(pair_args(size, nullptr, nullptr, a, b, false, false), same, margin, legacy);
    const RowSlice slice = row_slice(items, first, of);
    check(items, args);
    return [=, &kernels = loss_kernels()] {
        const auto on_copies = [&](const std::vector<float*>& copies, int64_t copied_count, LossPartial& sum) {
            PairArgs copied = args;
            copied.a = copies[0];
            copied.b = copies[1];
            copied.same = copies[2];
            kernels.contrastive_loss(copied, 0, copied_count, sum);
        };
        run_loss([&](int64_t begin, int64_t end, LossPartial& sum) { kernels.contrastive_loss(args, begin, end, sum); },
                 on_copies, {{args.a, args.size}, {args.b, args.size}, {args.same, 1}}, slice,
                 items_per_task(args.size), 0, divisor, loss, workspace, carry);
    };
}

Launch contrastive_loss_backward(int64_t items, int64_t size, OrNull<float> da, OrNull<float> db, const float* a,
                                 const float* b, const float* same, const float* dloss, float margin, bool legacy,
                                 double divisor, bool accumulate_da, bool accumulate_db) {
    const PairArgs args =
        contrastive_args(pair_args(size, da, db, a, b, accumulate_da, accumulate_db), same, margin, legacy);
    check(items, args);
    return [=, &kernels = loss_kernels()] {
        PairArgs scaled = args;
        scaled.scale = gradient_scale(dloss, divisor);
        parallel_for_ranges(items, items_per_task(args.size),
                            [&](int64_t begin, int64_t end) { kernels.contrastive_loss_backward(scaled, begin, end); });
    };
}

// -- HingeLoss, MultinomialLogisticLoss -------------------------------------------------------------------------------

namespace {
// One row of class scores and one label per item; both losses are divided by the number of items.
using ItemKernel = void (*)(const ItemArgs&, int64_t begin, int64_t end, LossPartial&);
using ItemBackwardKernel = void (*)(const ItemArgs&, int64_t begin, int64_t end);

Launch item_loss_forward(ItemKernel kernel, const RowSlice& items, float* loss, const ItemArgs& args, void* workspace,
                         void* carry) {
    check(items.count, args);
    return [=] {
        const auto on_copies = [&](const std::vector<float*>& copies, int64_t copied_count, LossPartial& sum) {
            ItemArgs copied = args;
            copied.x = copies[0];
            copied.label = copies[1];
            kernel(copied, 0, copied_count, sum);
        };
        run_loss([&](int64_t begin, int64_t end, LossPartial& sum) { kernel(args, begin, end, sum); }, on_copies,
                 {{args.x, args.classes}, {args.label, 1}}, items, items_per_task(args.classes), args.classes,
                 static_cast<double>(items.all), loss, workspace, carry);
    };
}

Launch item_loss_backward(ItemBackwardKernel kernel, const RowSlice& items, const ItemArgs& args, const float* dloss) {
    check(items.count, args);
    return [=] {
        ItemArgs scaled = args;
        scaled.scale = gradient_scale(dloss, static_cast<double>(items.all));
        parallel_for_ranges(items.count, items_per_task(args.classes),
                            [&](int64_t begin, int64_t end) { kernel(scaled, begin, end); });
    };
}
}  // namespace

int64_t item_loss_workspace_bytes(int64_t items, int64_t classes) {
    return loss_partial_bytes(items, items_per_task(classes));
}

int64_t item_loss_carry_bytes(int64_t items, int64_t classes) {
    return loss_carry_bytes(items, items_per_task(classes), classes + 1);
}

Launch hinge_loss_forward(int64_t items, int64_t classes, int64_t channels, float* loss, const float* x,
                          const float* label, bool squared, OrNull<void> workspace, int64_t first, int64_t of,
                          void* carry) {
    return item_loss_forward(loss_kernels().hinge_loss, row_slice(items, first, of), loss,
                             {classes, channels, nullptr, x, label, 0, squared, false}, workspace, carry);
}

Launch hinge_loss_backward(int64_t items, int64_t classes, int64_t channels, float* dx, const float* x,
                           const float* label, const float* dloss, bool squared, bool accumulate, int64_t of) {
    return item_loss_backward(loss_kernels().hinge_loss_backward, row_slice(items, 0, of),
                              {classes, channels, dx, x, label, 0, squared, accumulate}, dloss);
}

Launch logistic_loss_forward(int64_t items, int64_t classes, int64_t channels, float* loss, const float* x,
                             const float* label, bool squared, OrNull<void> workspace, int64_t first, int64_t of,
                             void* carry) {
    return item_loss_forward(loss_kernels().logistic_loss, row_slice(items, first, of), loss,
                             {classes, channels, nullptr, x, label, 0, squared, false}, workspace, carry);
}

Launch logistic_loss_backward(int64_t items, int64_t classes, int64_t channels, float* dx, const float* x,
                              const float* label, const float* dloss, bool squared, bool accumulate, int64_t of) {
    return item_loss_backward(loss_kernels().logistic_loss_backward, row_slice(items, 0, of),
                              {classes, channels, dx, x, label, 0, squared, accumulate}, dloss);
}

LAYERMEM_KERNEL(sigmoid_loss_workspace_bytes)
LAYERMEM_KERNEL(sigmoid_loss_carry_bytes)
LAYERMEM_KERNEL(sigmoid_loss_forward)
LAYERMEM_KERNEL(sigmoid_loss_backward)
LAYERMEM_KERNEL(euclidean_loss_workspace_bytes)
LAYERMEM_KERNEL(euclidean_loss_carry_bytes)
LAYERMEM_KERNEL(euclidean_loss_forward)
LAYERMEM_KERNEL(euclidean_loss_backward)
LAYERMEM_KERNEL(smooth_l1_loss_carry_bytes)
LAYERMEM_KERNEL(smooth_l1_loss_forward)
LAYERMEM_KERNEL(smooth_l1_loss_backward)
LAYERMEM_KERNEL(contrastive_loss_workspace_bytes)
LAYERMEM_KERNEL(contrastive_loss_carry_bytes)
LAYERMEM_KERNEL(contrastive_loss_forward)
LAYERMEM_KERNEL(contrastive_loss_backward)
LAYERMEM_KERNEL(item_loss_workspace_bytes)
LAYERMEM_KERNEL(item_loss_carry_bytes)
LAYERMEM_KERNEL(hinge_loss_forward)
LAYERMEM_KERNEL(hinge_loss_backward)
LAYERMEM_KERNEL(logistic_loss_forward)
LAYERMEM_KERNEL(logistic_loss_backward)

}  // namespace layermem::cpu
