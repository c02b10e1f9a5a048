// A task is a range of positions.  Losses are added in double, task by task (loss_partials.h).
#include "cpu/kernels/infogain.h"

#include <algorithm>

#include "cpu/kernels/loss_partials.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

int64_t positions_per_task(const Axis& axis) { return std::max<int64_t>(1, kLossTaskElements / axis.size); }

}  // namespace

// The losses of the tasks, or the counts of labels; then the sums of the matrix's rows.
int64_t infogain_loss_workspace_bytes(const Axis& axis) {
    const int64_t positions = axis.positions();
    return std::max(loss_partial_bytes(positions, positions_per_task(axis)), loss_divisor_bytes(positions)) +
           aligned_bytes<float>(axis.size);
}

Launch infogain_loss_forward(const InfogainArgs& args, float* loss, void* workspace) {
    args.axis.check();
    return [=, &kernels = infogain_kernels()] {
        const auto add = [&](int64_t begin, int64_t end, LossPartial& sum) { kernels.forward(args, begin, end, sum); };
        run_loss_partials(add, args.axis.positions(), positions_per_task(args.axis), args.axis.size,
                          args.labels.divisor, loss, workspace);
    };
}

Launch infogain_loss_backward(const InfogainArgs& args, float* dx, const float* dloss, bool accumulate,
                              void* workspace) {
    args.axis.check();
    return [=, &kernels = infogain_kernels()] {
        const Axis& axis = args.axis;
        auto* row_sums = reinterpret_cast<float*>(static_cast<char*>(workspace) + infogain_loss_workspace_bytes(axis) -
                                                  aligned_bytes<float>(axis.size));
        const double divisor = loss_divisor(args.labels, axis.positions(), workspace);
        const auto scale = static_cast<float>(static_cast<double>(*dloss) / divisor);
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

}  // namespace layermem::cpu
