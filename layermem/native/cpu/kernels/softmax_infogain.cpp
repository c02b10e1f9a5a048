// A task is a range of positions.  Losses are added in double, task by task (loss_partials.h).
#include "cpu/kernels/softmax_infogain.h"

#include <algorithm>

#include "cpu/kernels/loss_partials.h"
#include "cpu/kernels/registry.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

int64_t positions_per_task(const Axis& axis) { return std::max<int64_t>(1, kLossTaskElements / axis.size); }

}  // namespace

// The losses of the tasks, or the sums of the matrix's rows and the counts of labels.
int64_t infogain_loss_workspace_bytes(const Axis& axis) {
    const int64_t positions = axis.positions();
    return std::max(loss_partial_bytes(positions, positions_per_task(axis)), loss_divisor_bytes(positions)) +
           aligned_bytes<float>(axis.size);
}

int64_t infogain_loss_carry_bytes(const Axis& axis) {
    return loss_carry_bytes(axis.positions(), positions_per_task(axis), axis.size + 1);
}

Launch infogain_loss_forward(const Axis& axis, float* loss, const float* p, const float* label, const float* matrix,
                             const std::optional<int64_t>& ignore_label, double divisor, OrNull<void> workspace,
                             int64_t first, int64_t of, void* carry) {
    const InfogainArgs args{axis, p, matrix, labels_of(label, ignore_label, divisor)};
    const RowSlice positions = row_slice(axis.positions(), first, of);
    axis.check();
    if (!positions.is_whole() && args.axis.inner > 1)
        throw std::invalid_argument("infogain: slices of a batch need the classes of a position side by side");
    return [=, &kernels = infogain_kernels()] {
        const auto add = [&](int64_t begin, int64_t end, LossPartial& sum) { kernels.forward(args, begin, end, sum); };
        const auto on_copies = [&](const std::vector<float*>& copies, int64_t count, LossPartial& sum) {
            InfogainArgs copied = args;
            copied.p = copies[0];
            copied.labels.label = copies[1];
            kernels.forward(copied, 0, count, sum);
        };
        if (!positions.is_whole())
            return run_loss_slice(add, on_copies, write_nothing, {{args.p, args.axis.size}, {args.labels.label, 1}},
                                  positions, positions_per_task(args.axis), args.axis.size, args.labels.divisor, loss,
                                  carry);
        run_loss_partials(add, args.axis.positions(), positions_per_task(args.axis), args.axis.size,
                          args.labels.divisor, loss, workspace);
    };
}

Launch infogain_loss_backward(const Axis& axis, float* dx, const float* p, const float* label, const float* matrix,
                              const float* dloss, const std::optional<int64_t>& ignore_label, double divisor,
                              bool accumulate, void* workspace, const float* counted, int64_t of) {
    const InfogainArgs args{axis, p, matrix, labels_of(label, ignore_label, divisor)};
    const CountedLabels counted_whole = counted_labels(label, axis.positions(), counted, of);
    axis.check();
    return [=, &kernels = infogain_kernels()] {
        auto* row_sums = static_cast<float*>(workspace);
        void* counts = static_cast<char*>(workspace) + aligned_bytes<float>(axis.size);
        const double by = loss_divisor(args.labels, counted_whole, counts);
        const auto scale = static_cast<float>(static_cast<double>(*dloss) / by);
        parallel_for(axis.size, [&](int64_t row) {
            double sum = 0;
            for (int64_t c = 0; c < axis.size; ++c) sum += static_cast<double>(args.matrix[row * axis.size + c]);
            row_sums[row] = static_cast<float>(sum);
        });
        const InfogainGradient gradient{dx, row_sums, scale, accumulate};
        parallel_for_ranges(axis.positions(), positions_per_task(axis),
                            [&](int64_t begin, int64_t end) { kernels.backward(args, gradient, begin, end); });
    };
}

LAYERMEM_KERNEL(infogain_loss_workspace_bytes)
LAYERMEM_KERNEL(infogain_loss_carry_bytes)
LAYERMEM_KERNEL(infogain_loss_forward)
LAYERMEM_KERNEL(infogain_loss_backward)

}  // namespace layermem::cpu
