// A task is a range of rows (inner = 1) or one outer index, fixed by the shape.
#include "cpu/kernels/softmax.h"

#include <algorithm>

#include "cpu/kernels/loss_partials.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

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
        const auto label = static_cast<int64_t>(args.labels.label[i]);
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

int64_t softmax_loss_workspace(const Axis& axis) {
    axis.check();
    return std::max(partial_bytes(axis), loss_divisor_bytes(axis.positions()));
}

Launch softmax_loss_forward(const Axis& axis, float* loss, float* y, const float* x, const Labels& labels,
                            void* workspace) {
    axis.check();
    SoftmaxArgs args = with_labels(axis, x, labels);
    args.out = y;
    return [=, &kernels = softmax_kernels()] {
        run_loss(kernels.softmax_loss, args, args.labels.divisor, loss, workspace);
    };
}

Launch softmax_loss_backward(const Axis& axis, float* dx, const float* x, const float* dloss, const Labels& labels,
                             bool accumulate, void* workspace) {
    axis.check();
    SoftmaxArgs args = with_labels(axis, x, labels);
    args.out = dx;
    args.accumulate = accumulate;
    return [=, &kernels = softmax_kernels()] {
        SoftmaxArgs scaled = args;
        const double divisor = loss_divisor(args.labels, args.axis.positions(), workspace);
        scaled.scale = static_cast<float>(static_cast<double>(*dloss) / divisor);
        run(kernels.softmax_loss_backward, scaled);
    };
}

// workspace: the partial sums; then, for by_class, counts [2][size] and a byte per position
int64_t accuracy_workspace(const Axis& axis, bool by_class) {
    axis.check();
    const int64_t counts = aligned_bytes<int64_t>(2 * axis.size) + aligned_bytes<uint8_t>(axis.positions());
    return partial_bytes(axis) + (by_class ? counts : 0);
}

Launch accuracy(const Axis& axis, float* y, float* by_class, const float* x, const Labels& labels, int64_t top_k,
                void* workspace) {
    axis.check();
    char* counts = static_cast<char*>(workspace) + partial_bytes(axis);
    SoftmaxArgs args = with_labels(axis, x, labels);
    args.top_k = top_k;
    if (by_class) args.correct = reinterpret_cast<uint8_t*>(counts + aligned_bytes<int64_t>(2 * axis.size));
    return [=, &kernels = softmax_kernels()] {
        run_loss(kernels.accuracy, args, 0, y, workspace);
        if (by_class) accuracy_by_class(args, by_class, reinterpret_cast<int64_t*>(counts));
    };
}

}  // namespace layermem::cpu
