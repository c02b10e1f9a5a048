// Softmax, SoftmaxWithLoss and Accuracy along the axis of x [outer][size][inner]; there is one label per position, that
// is per (outer, inner), and losses and counts are sums over positions.
//
// A task is a range of rows (inner = 1) or one outer index, fixed by the shape, and partial losses are added in order
// of tasks: the loss does not depend on the number of threads.  A label out of range is counted by the kernel and
// reported after all tasks are done (loss_partials.h), since tasks must not throw.
#include "cpu/kernels/softmax.h"

#include <algorithm>

#include "cpu/kernels/loss_partials.h"
#include "cpu/kernels/registry.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

// Outer indices of a task: about kLossTaskElements elements where a row is contiguous.
int64_t task_step(const Axis& axis) {
    return axis.inner == 1 ? std::max<int64_t>(1, kLossTaskElements / axis.size) : 1;
}

int64_t partial_bytes(const Axis& axis) { return loss_partial_bytes(axis.outer, task_step(axis)); }

// Arguments are completed when a launch is bound, but for the gradient scale, which depends on *dloss.
using Kernel = void (*)(const SoftmaxArgs&, int64_t begin, int64_t end);
using LossKernel = void (*)(const SoftmaxArgs&, int64_t begin, int64_t end, LossPartial&);

void run(Kernel kernel, const SoftmaxArgs& args) {
    parallel_for_ranges(args.axis.outer, task_step(args.axis),
                        [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
}

void run_loss(LossKernel kernel, const SoftmaxArgs& args, double divisor, float* loss, void* workspace) {
    run_loss_partials([&](int64_t begin, int64_t end, LossPartial& sum) { kernel(args, begin, end, sum); },
                      args.axis.outer, task_step(args.axis), args.axis.size, divisor, loss, workspace);
}

// softmax_loss of the outer indices of a slice; args.axis is that of the whole batch.
void run_loss_of_slice(LossKernel kernel, const SoftmaxArgs& args, const RowSlice& outer, float* loss, void* carry) {
    const Axis& axis = args.axis;
    const auto on_copies = [&](const std::vector<float*>& copies, int64_t count, LossPartial& sum) {
        SoftmaxArgs copied = args;
        copied.a = copies[0];
        copied.labels.label = copies[1];
        copied.out = nullptr;
        kernel(copied, 0, count, sum);
    };
    const auto write = [&](int64_t begin, int64_t end) {
        LossPartial unused{};
        if (args.out) kernel(args, begin, end, unused);
    };
    run_loss_slice([&](int64_t begin, int64_t end, LossPartial& sum) { kernel(args, begin, end, sum); }, on_copies,
                   write, {{args.a, axis.size * axis.inner}, {args.labels.label, axis.inner}}, outer, task_step(axis),
                   axis.size, args.labels.divisor, loss, carry);
}

// Arguments of the kernels that read labels; the other members are zero.
SoftmaxArgs with_labels(const Axis& axis, const float* x, const Labels& labels) {
    SoftmaxArgs args{};
    args.axis = axis;
    args.a = x;
    args.labels = labels;
    return args;
}

// The accuracy of each class from `correct`, one byte per position.  counts [2][classes] is workspace.
void accuracy_by_class(const SoftmaxArgs& args, float* y, int64_t* counts) {
    const int64_t classes = args.axis.size;
    int64_t *all = counts, *correct = counts + classes;
    std::fill(counts, counts + 2 * classes, 0);
    for (int64_t i = 0; i < args.axis.positions(); ++i) {
        const auto label = label_class(args.labels.label[i]);
        if (args.labels.ignores && label == args.labels.ignore_label) continue;
        ++all[label];
        correct[label] += args.correct[i];
    }
    for (int64_t c = 0; c < classes; ++c)
        y[c] = static_cast<float>(static_cast<double>(correct[c]) / static_cast<double>(std::max<int64_t>(1, all[c])));
}

}  // namespace

Launch softmax_forward(const Axis& axis, float* y, const float* x) {
    axis.check();
    SoftmaxArgs args{};
    args.axis = axis;
    args.out = y;
    args.a = x;
    return [=, &kernels = softmax_kernels()] { run(kernels.softmax, args); };
}

// dx = y (dy - sum over the axis of dy y): y is all of forward that is needed
Launch softmax_backward(const Axis& axis, float* dx, const float* y, const float* dy, bool accumulate) {
    axis.check();
    SoftmaxArgs args{};
    args.axis = axis;
    args.out = dx;
    args.a = y;
    args.dy = dy;
    args.accumulate = accumulate;
    return [=, &kernels = softmax_kernels()] { run(kernels.softmax_backward, args); };
}

// workspace: forward the partial losses, backward the counts of valid labels, from which the divisor follows
int64_t softmax_loss_workspace_bytes(const Axis& axis) {
    axis.check();
    return std::max(partial_bytes(axis), loss_divisor_bytes(axis.positions()));
}

int64_t softmax_loss_carry_bytes(const Axis& axis) {
    axis.check();
    return loss_carry_bytes(axis.outer, task_step(axis), (axis.size + 1) * axis.inner);
}

// loss = -sum log y[label] / divisor.  y may be null: backward computes the probabilities from x again.
Launch softmax_loss_forward(const Axis& axis, float* loss, OrNull<float> y, const float* x, const float* label,
                            const std::optional<int64_t>& ignore_label, double divisor, OrNull<void> workspace,
                            int64_t first, int64_t of, void* carry) {
    axis.check();
    const RowSlice outer = row_slice(axis.outer, first, of);
    SoftmaxArgs args = with_labels({outer.all, axis.size, axis.inner}, x, labels_of(label, ignore_label, divisor));
    args.out = y;
    return [=, &kernels = softmax_kernels()] {
        if (!outer.is_whole()) return run_loss_of_slice(kernels.softmax_loss, args, outer, loss, carry);
        run_loss(kernels.softmax_loss, args, args.labels.divisor, loss, workspace);
    };
}

// dx = (softmax(x) - one_hot(label)) dloss / divisor, zero at positions whose label is ignored
Launch softmax_loss_backward(const Axis& axis, float* dx, const float* x, const float* label, const float* dloss,
                             const std::optional<int64_t>& ignore_label, double divisor, bool accumulate,
                             OrNull<void> workspace, const float* counted, int64_t of) {
    axis.check();
    const CountedLabels counted_whole = counted_labels(label, axis.positions(), counted, of);
    SoftmaxArgs args = with_labels(axis, x, labels_of(label, ignore_label, divisor));
    args.out = dx;
    args.accumulate = accumulate;
    return [=, &kernels = softmax_kernels()] {
        SoftmaxArgs scaled = args;
        const double by = loss_divisor(args.labels, counted_whole, workspace);
        scaled.scale = static_cast<float>(static_cast<double>(*dloss) / by);
        run(kernels.softmax_loss_backward, scaled);
    };
}

// workspace: the partial sums; then, for by_class, counts [2][size] and a byte per position
int64_t accuracy_workspace_bytes(const Axis& axis, bool by_class) {
    axis.check();
    const int64_t counts = aligned_bytes<int64_t>(2 * axis.size) + aligned_bytes<uint8_t>(axis.positions());
    return partial_bytes(axis) + (by_class ? counts : 0);
}

// The share of positions whose label is among the top_k; by_class [size] is optional.
Launch accuracy(const Axis& axis, float* y, OrNull<float> by_class, const float* x, const float* label,
                const std::optional<int64_t>& ignore_label, int64_t top_k, void* workspace) {
    axis.check();
    char* counts = static_cast<char*>(workspace) + partial_bytes(axis);
    SoftmaxArgs args = with_labels(axis, x, labels_of(label, ignore_label, 0));
    args.top_k = top_k;
    if (by_class) args.correct = reinterpret_cast<uint8_t*>(counts + aligned_bytes<int64_t>(2 * axis.size));
    return [=, &kernels = softmax_kernels()] {
        run_loss(kernels.accuracy, args, 0, y, workspace);
        if (by_class) accuracy_by_class(args, by_class, reinterpret_cast<int64_t*>(counts));
    };
}

LAYERMEM_KERNEL(softmax_forward)
LAYERMEM_KERNEL(softmax_backward)
LAYERMEM_KERNEL(softmax_loss_workspace_bytes)
LAYERMEM_KERNEL(softmax_loss_carry_bytes)
LAYERMEM_KERNEL(softmax_loss_forward)
LAYERMEM_KERNEL(softmax_loss_backward)
LAYERMEM_KERNEL(accuracy_workspace_bytes)
LAYERMEM_KERNEL(accuracy)

}  // namespace layermem::cpu
