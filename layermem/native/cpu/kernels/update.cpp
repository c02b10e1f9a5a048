// Update rules and the sum of squares that clipping needs.  A task is a range of elements; rate and gain (a factor of
// the gradient) are arguments of the launch, as they change with every step.  Weights and optimizer state are read and
// written once, the gradient is read once: bound by memory.
#include "cpu/kernels/update.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "cpu/kernels/element_tasks.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

struct NamedRule {
    const char* name;
    UpdateRule rule;
    bool two_states;  // whether the rule keeps h1 as well as h0
};

constexpr NamedRule kRules[] = {
    {"SGD", UpdateRule::sgd, false},          {"Nesterov", UpdateRule::nesterov, false},
    {"AdaGrad", UpdateRule::adagrad, false},  {"RMSProp", UpdateRule::rmsprop, false},
    {"AdaDelta", UpdateRule::adadelta, true}, {"Adam", UpdateRule::adam, true},
};

}  // namespace

UpdateRule update_rule(const std::string& name) {
    for (const NamedRule& known : kRules)
        if (name == known.name) return known.rule;
    throw std::invalid_argument("update: unknown rule '" + name + "'");
}

// h0 and h1 are the optimizer state of a parameter; which of them a rule keeps is fixed.
void check_update(const Update& args) {
    const auto* known = std::find_if(std::begin(kRules), std::end(kRules),
                                     [&](const NamedRule& named) { return named.rule == args.rule; });
    if (!args.h0 || known->two_states != (args.h1 != nullptr))
        throw std::invalid_argument(std::string("update: ") + known->name + " keeps " +
                                    (known->two_states ? "two history blobs" : "one history blob"));
}

UpdateLaunch update(int64_t count, const Update& args) {
    check_count(count);
    check_update(args);
    return [=, &kernels = update_kernels()](float rate, float gain) {
        Update now = args;
        now.rate = rate;
        now.gain = gain;
        parallel_for_ranges(count, kTaskElements, [&](int64_t begin, int64_t end) { kernels.update(now, begin, end); });
    };
}

// out = the sum over all arrays of x^2, or its square root: the norm of the gradient.  Parts are doubles and are added
// in order, array by array.
Launch sum_of_squares(float* out, const std::vector<const float*>& xs, const std::vector<int64_t>& counts, bool root) {
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

}  // namespace layermem::cpu
