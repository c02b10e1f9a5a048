// Labels as Python passes them.
#pragma once
#include <optional>

#include "cpu/bindings/define.h"
#include "cpu/kernels/loss_partials.h"
#include "cpu/microkernels/loss_args.h"

namespace layermem::cpu {

using IgnoreLabel = std::optional<int64_t>;

inline Labels labels(Address label, const IgnoreLabel& ignore_label, double divisor) {
    return {at<float>(label), ignore_label.has_value(), ignore_label.value_or(0), divisor};
}

// The labels that the divisor counts: `of` at `counted`, the whole batch's; 0: those of the launch.
inline CountedLabels counted_labels(Address label, int64_t count, Address counted, int64_t of) {
    return {at<float>(counted ? counted : label), of ? of : count};
}

}  // namespace layermem::cpu
