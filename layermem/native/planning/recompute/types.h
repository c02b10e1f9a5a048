// The vocabulary of the recomputation planner: each alias is one line with its unit.
#pragma once

#include <limits>
#include <vector>

#include "planning/types.h"

namespace layermem::planning::recompute {

using Chain = std::vector<SetIndex>;  // lower sets L1 < ... < Lk = V, without {}: the ends of its segments
using Bound = double;                 // quanta: a lower bound, which need not be whole
using Multiplier = double;            // quanta per byte: the price of a byte in a Lagrangian bound

enum class Objective { time, memory };  // the least recomputation, or the most (the paper's memory-centric rule)

constexpr Bytes kUnreached = std::numeric_limits<Bytes>::max() / 4;  // bytes kept where no chain leads to

}  // namespace layermem::planning::recompute
