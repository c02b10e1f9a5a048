// The vocabulary of native planning: each alias is one line with its unit.
#pragma once

#include <cstdint>
#include <utility>

namespace layermem::planning {

using Bytes = int64_t;   // sizes, offsets, heights, budgets
using Tick = int64_t;    // index of an instruction of a schedule
using Seconds = double;  // wall time, or a duration of the cost model
using Quanta = int64_t;  // time of an op in whole units, so that sums compare exactly (StepGraph::quanta_per_unit)
using Node = int32_t;    // a forward op of a step graph; ids follow a topological order
using Value = int32_t;   // bytes that a node writes for others: an activation or a stash
using Grad = int32_t;    // bytes that a step writes for others
using Step = int32_t;    // a backward op; ids follow the order of the plain backward pass
using Item = int32_t;    // a value, or a gradient: gradients are numbered on from the last value
using SetIndex = int;    // index of a lower set in LowerSets: 0 is {}, the last one is V
using Overlay = std::pair<int32_t, int32_t>;  // {written, read}, in the numbering of the op that carries it

}  // namespace layermem::planning
