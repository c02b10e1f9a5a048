// A task is a range of positions.  Losses are added in double, task by task (loss_partials.h).
#include "cpu/kernels/infogain.h"

#include <algorithm>
#include <cmath>

#include "cpu/kernels/loss_partials.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

constexpr float kSmallestShare = 1e-20f;  // Caffe's kLOG_THRESHOLD

int64_t positions_per_task(const Axis& axis) { return std::max<int64_t>(1, kLossTaskElements / axis.size); }

// Offset of class 0 at a position; the others follow, axis.inner apart.
int64_t first_class(const Axis& axis, int64_t position) {
    return position / axis.inner * axis.size * axis.inner + position % axis.inner;
}

bool is_class(int64_t label, const Axis& axis) { return label >= 0 && label < axis.size; }

}  // namespace

// The losses of the tasks, or the counts of labels; then the sums of the matrix's rows.
int64_t infogain_loss_workspace_bytes(const Axis& axis) {
    const int64_t positions = axis.positions();
    return std::max(loss_partial_bytes(positions, positions_per_task(axis)), loss_divisor_bytes(positions)) +
           aligned_bytes<float>(axis.size);
}

Launch infogain_loss_forward(const InfogainArgs& args, float* loss, void* workspace) {
    args.axis.check();
    return [=] {
        const Axis& axis = args.axis;
        const auto add = [&](int64_t begin, int64_t end, LossPartial& sum) {
            for (int64_t i = begin; i < end; ++i) {
                const int64_t label = label_class(args.labels.label[i]);
                if (args.labels.ignores && label == args.labels.ignore_label) continue;
                if (!is_class(label, axis)) {
                    ++sum.bad_labels;
                    sum.bad_label = static_cast<double>(args.labels.label[i]);
                    continue;
                }
                const float *row = args.matrix + label * axis.size, *p = args.p + first_class(axis, i);
                ++sum.valid;
                for (int64_t c = 0; c < axis.size; ++c) {
                    const float share = p[c * axis.inner];
                    const float logarithm = std::log(share < kSmallestShare ? kSmallestShare : share);  // a NaN stays
                    sum.loss -= static_cast<double>(row[c]) * static_cast<double>(logarithm);
                }
            }
        };
        run_loss_partials(add, axis.positions(), positions_per_task(axis), axis.size, args.labels.divisor, loss,
                          workspace);
    };
}

Launch infogain_loss_backward(const InfogainArgs& args, float* dx, const float* dloss, bool accumulate,
                              void* workspace) {
    args.axis.check();
    return [=] {
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
        parallel_for_ranges(axis.positions(), positions_per_task(axis), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const int64_t label = label_class(args.labels.label[i]), first = first_class(axis, i);
                const bool counts =
                    is_class(label, axis) && !(args.labels.ignores && label == args.labels.ignore_label);
                const float* row = args.matrix + (counts ? label * axis.size : 0);
                const float sum = counts ? row_sums[label] : 0;
                for (int64_t c = 0; c < axis.size; ++c) {
                    float& out = dx[first + c * axis.inner];
                    const float slope = counts ? scale * (args.p[first + c * axis.inner] * sum - row[c]) : 0;
                    out = accumulate ? out + slope : slope;
                }
            }
        });
    };
}

}  // namespace layermem::cpu
