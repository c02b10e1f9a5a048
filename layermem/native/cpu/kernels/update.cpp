// Update rules and the sum of squares that clipping needs.  A task is a range of elements; rate, gain (a factor of the
// gradient) and shrink are arguments of the launch, as they change with every step.  Weights and optimizer state are read and
// written once, the gradient is read once: bound by memory.
#include "cpu/kernels/update.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "cpu/kernels/element_tasks.h"
#include "cpu/kernels/registry.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

struct NamedRule {
    const char* name;
    UpdateRule rule;
    int states;  // how many of h0 and h1 it keeps
};

constexpr NamedRule kRules[] = {
    {"SGD", UpdateRule::SGD, 1},         {"Nesterov", UpdateRule::Nesterov, 1},     {"AdaGrad", UpdateRule::AdaGrad, 1},
    {"RMSProp", UpdateRule::RMSProp, 1}, {"AdaDelta", UpdateRule::AdaDelta, 2},     {"Adam", UpdateRule::Adam, 2},
    {"AdamW", UpdateRule::AdamW, 2},     {"Accumulate", UpdateRule::Accumulate, 0},
};

}  // namespace

// h0 and h1 are the optimizer state of a parameter; which of them a rule keeps is fixed.
void check_update(const Update& args) {
    const auto* known = std::find_if(std::begin(kRules), std::end(kRules),
                                     [&](const NamedRule& named) { return named.rule == args.rule; });
    const char* const kept[] = {"no history blob", "one history blob", "two history blobs"};
    if ((known->states > 0) != (args.h0 != nullptr) || (known->states > 1) != (args.h1 != nullptr))
        throw std::invalid_argument(std::string("update: ") + known->name + " keeps " + kept[known->states]);
}

UpdateLaunch update(int64_t count, const Update& args) {
    check_count(count);
    check_update(args);
    if (!args.dw) throw std::invalid_argument("update: dw is needed");
    return [=, &kernels = update_kernels()](float rate, float gain, float shrink) {
        Update now = args;
        now.rate = rate;
        now.gain = gain;
        now.shrink = shrink;
        parallel_for_ranges(count, kTaskElements, [&](int64_t begin, int64_t end) { kernels.update(now, begin, end); });
    };
}

// out = the sum over all arrays of x^2, or its square root: the norm of the gradient.  Parts are doubles and are added
// in order, array by array.
Launch sum_of_squares(const std::vector<int64_t>& counts, float* out, const std::vector<const float*>& xs, bool root) {
    if (xs.size() != counts.size()) throw std::invalid_argument("sum_of_squares: one count per array is needed");
    for (const int64_t count : counts) check_count(count);
    return [=, &kernels = update_kernels()] {
        constexpr int64_t kMaxParts = 64;  // of one array: enough to share out
        std::array<double, kMaxParts> parts;
        double sum = 0;
        for (size_t a = 0; a < xs.size(); ++a) {
            // Whole tasks of kTaskElements, several per part where an array would have too many.
            const int64_t step =
                std::max(kTaskElements, ceil_div(counts[a], kMaxParts * kTaskElements) * kTaskElements);
            parallel_for_ranges(counts[a], step, [&](int64_t begin, int64_t end) {
                parts[static_cast<size_t>(begin / step)] = kernels.sum_of_squares(xs[a], begin, end);
            });
            for (int64_t i = 0; i < ceil_div(counts[a], step); ++i) sum += parts[static_cast<size_t>(i)];
        }
        *out = static_cast<float>(root ? std::sqrt(sum) : sum);
    };
}

Launch row_squares(int64_t rows, int64_t elements, float* out, const float* x) {
    check_count(rows);
    check_count(elements);
    const int64_t rows_per_task = std::max<int64_t>(1, kTaskElements / std::max<int64_t>(1, elements));
    return [=, &kernels = update_kernels()] {
        parallel_for_ranges(rows, rows_per_task, [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row)
                out[row] = static_cast<float>(kernels.sum_of_squares(x + row * elements, 0, elements));
        });
    };
}

Launch norm_of_rows(const std::vector<int64_t>& counts, float* out, const std::vector<const float*>& squares) {
    if (squares.size() != counts.size()) throw std::invalid_argument("norm_of_rows: one count per array is needed");
    for (const int64_t count : counts) check_count(count);
    return [=] {
        double sum = 0;
        for (size_t a = 0; a < squares.size(); ++a)
            for (int64_t i = 0; i < counts[a]; ++i) sum += static_cast<double>(squares[a][i]);
        *out = static_cast<float>(std::sqrt(sum));
    };
}

LAYERMEM_KERNEL(update)
LAYERMEM_KERNEL(sum_of_squares)
LAYERMEM_KERNEL(row_squares)
LAYERMEM_KERNEL(norm_of_rows)

}  // namespace layermem::cpu
