// Labels as Python names them.
#pragma once
#include <pybind11/stl.h>

#include <optional>

#include "launch.h"
#include "losses.h"

namespace layermem::cpu {

using Label = std::optional<int64_t>;

inline Labels labels(Address label, const Label& ignore_label, double divisor) {
    return {at<float>(label), ignore_label.has_value(), ignore_label.value_or(0), divisor};
}

}  // namespace layermem::cpu
