// A loss as a sum of partial sums: each task sums its part of the batch, and the parts are added in order, so that the
// result does not depend on the number of threads.
//
// Slices of a batch, in rising order, carry the partial sums of the tasks of the whole batch, and copies of the
// inputs of the incomplete task, which runs once it has all its positions.  The last slice adds up the tasks.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

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

// *loss = the sum of the tasks divided by `divisor` (0: by the number of positions that count, at least 1).
// std::invalid_argument for a label outside [0, classes).
inline void add_loss_partials(const LossPartial* partials, int64_t tasks, int64_t classes, double divisor,
                              float* loss) {
    LossPartial sum{};
    for (int64_t i = 0; i < tasks; ++i) {
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

// *loss = the sum of kernel(begin, end, LossPartial&) over [0, total) in ranges of `step`, divided as above.
template <class Kernel>
void run_loss_partials(const Kernel& kernel, int64_t total, int64_t step, int64_t classes, double divisor, float* loss,
                       void* workspace) {
    auto* partials = static_cast<LossPartial*>(workspace);
    parallel_for_ranges(total, step, [&](int64_t begin, int64_t end) {
        LossPartial& partial = partials[begin / step];
        partial = LossPartial{};
        kernel(begin, end, partial);
    });
    add_loss_partials(partials, ceil_div(total, step), classes, divisor, loss);
}

// -- slices of a batch ------------------------------------------------------------------------------------------------

// An input of a loss: `width` floats for each position; null for none.
struct LossInput {
    const float* data;
    int64_t width;
};

// The number of positions of a task whose inputs can be copied.
inline int64_t loss_copies(int64_t total, int64_t step) { return step > 1 ? std::min(step, total) : 0; }

// Bytes that run_loss_slice carries for `total` positions in tasks of `step`, each of which reads `floats`.
inline int64_t loss_carry_bytes(int64_t total, int64_t step, int64_t floats) {
    return loss_partial_bytes(total, step) + aligned_bytes<float>(loss_copies(total, step) * floats);
}

// run_loss_partials for the positions of a slice, which kernel(begin, end, LossPartial&) counts from 0.
//     on_copies(copies, count, LossPartial&)   does the same for `count` positions whose inputs lie in copies[0], ...
//     write(begin, end)                        writes the other outputs, for positions whose loss is computed later
// *loss is written by the last slice.
template <class Kernel, class OnCopies, class Write>
void run_loss_slice(const Kernel& kernel, const OnCopies& on_copies, const Write& write,
                    const std::vector<LossInput>& inputs, const RowSlice& slice, int64_t step, int64_t classes,
                    double divisor, float* loss, void* carry) {
    if (!carry) throw std::invalid_argument("loss: a slice of a batch needs what slices carry");
    auto* partials = static_cast<LossPartial*>(carry);
    auto* copies = reinterpret_cast<float*>(static_cast<char*>(carry) + loss_partial_bytes(slice.all, step));
    const int64_t end = slice.first + slice.count;
    std::vector<float*> places;
    for (const LossInput& input : inputs) {
        places.push_back(input.data ? copies : nullptr);
        copies += input.data ? loss_copies(slice.all, step) * input.width : 0;
    }
    const auto defer = [&](int64_t from, int64_t to) {  // positions of one task
        for (size_t i = 0; i < inputs.size(); ++i) {
            const int64_t width = inputs[i].width;
            if (inputs[i].data)
                std::memcpy(places[i] + from % step * width, inputs[i].data + (from - slice.first) * width,
                            static_cast<size_t>((to - from) * width) * sizeof(float));
        }
        write(from - slice.first, to - slice.first);
    };
    int64_t begun = slice.first;
    if (begun % step) {  // the task that the previous slice has begun
        const int64_t task = begun / step, last = std::min(slice.all, (task + 1) * step);
        begun = std::min(end, last);
        defer(slice.first, begun);
        if (begun == last) {
            partials[task] = LossPartial{};
            on_copies(places, last - task * step, partials[task]);
        }
    }
    const int64_t first_task = ceil_div(begun, step), stop = slice.is_last() ? ceil_div(end, step) : end / step;
    parallel_for(std::max<int64_t>(0, stop - first_task), [&](int64_t i) {
        const int64_t task = first_task + i;
        partials[task] = LossPartial{};
        kernel(task * step - slice.first, std::min(end, (task + 1) * step) - slice.first, partials[task]);
    });
    if (const int64_t rest = std::max(begun, stop * step); rest < end) defer(rest, end);
    if (slice.is_last()) add_loss_partials(partials, ceil_div(slice.all, step), classes, divisor, loss);
}

inline void write_nothing(int64_t, int64_t) {}

inline Labels labels_of(const float* label, const std::optional<int64_t>& ignore_label, double divisor) {
    return {label, ignore_label.has_value(), ignore_label.value_or(0), divisor};
}

// The labels that a divisor counts: those of the whole batch.
struct CountedLabels {
    const float* label;
    int64_t count;
};

// The `of` labels at `counted`, those of the whole batch; of = 0: the `count` labels of the launch.
inline CountedLabels counted_labels(const float* label, int64_t count, const float* counted, int64_t of) {
    return {counted ? counted : label, of ? of : count};
}

// The divisor of a loss with these labels: labels.divisor, or the number of labels that are not ignored.  Backward has
// only the labels, so it counts them again.
int64_t loss_divisor_bytes(int64_t count);  // bytes of its workspace
double loss_divisor(const Labels& labels, const CountedLabels& counted, void* workspace);

}  // namespace layermem::cpu
