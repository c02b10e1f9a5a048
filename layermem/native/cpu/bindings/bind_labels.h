// Labels as Python passes them.
#pragma once
#include <pybind11/stl.h>

#include <optional>

#include "cpu/bindings/bind.h"
#include "cpu/microkernels/loss_args.h"

namespace layermem::cpu {

using IgnoreLabel = std::optional<int64_t>;

inline Labels labels(Address label, const IgnoreLabel& ignore_label, double divisor) {
    return {at<float>(label), ignore_label.has_value(), ignore_label.value_or(0), divisor};
}

}  // namespace layermem::cpu
