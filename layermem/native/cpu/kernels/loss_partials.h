// A loss as a sum of partial sums: each task sums its part of the batch, and the parts are added in order, so that the
// result does not depend on the number of threads.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "cpu/kernels/launch.h"
#include "cpu/microkernels/loss_args.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {

constexpr int64_t kLossTaskElements = 8192;

inline std::string label_text(double label) {
    char text[32];
    std::snprintf(text, sizeof text, "%.9g", label);
    return text;
}

// Workspace of run_loss_partials for `total` positions in tasks of `step`.
inline int64_t loss_partial_bytes(int64_t total, int64_t step) {
    return aligned_bytes<LossPartial>(ceil_div(total, step));
}

// *loss = the sum of kernel(begin, end, LossPartial&) over [0, total) in ranges of `step`, divided by `divisor` (0: by
// the number of positions that count, at least 1).  std::invalid_argument for a label outside [0, classes).
template <class Kernel>
void run_loss_partials(const Kernel& kernel, int64_t total, int64_t step, int64_t classes, double divisor, float* loss,
                       void* workspace) {
    auto* partials = static_cast<LossPartial*>(workspace);
    parallel_for_ranges(total, step, [&](int64_t begin, int64_t end) {
        LossPartial& partial = partials[begin / step];
        partial = LossPartial{};
        kernel(begin, end, partial);
    });
    LossPartial sum{};
    for (int64_t i = 0; i < ceil_div(total, step); ++i) {
        const LossPartial& partial = partials[i];
        sum.loss += partial.loss;
        sum.valid += partial.valid;
        sum.bad_labels += partial.bad_labels;
        if (partial.bad_labels) sum.bad_label = partial.bad_label;
    }
    if (sum.bad_labels)
        throw std::invalid_argument("reads label " + label_text(sum.bad_label) + ", but has scores for " +
                                    std::to_string(classes) + " classes: 0 to " + std::to_string(classes - 1));
    const double by = divisor > 0 ? divisor : static_cast<double>(std::max<int64_t>(1, sum.valid));
    *loss = static_cast<float>(sum.loss / by);
}

// What a loss with these labels is divided by: labels.divisor, or the number of labels that are not ignored.  Backward
// has only the labels, so it counts them again.
int64_t loss_divisor_bytes(int64_t count);  // of its workspace
double loss_divisor(const Labels& labels, int64_t count, void* workspace);

}  // namespace layermem::cpu
