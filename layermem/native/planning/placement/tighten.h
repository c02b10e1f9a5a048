// From a greedy solution towards the bound: exact searches below one height after another, restarted in many orders.
#pragma once

#include "planning/placement/greedy.h"
#include "planning/placement/step_budget.h"

namespace layermem::planning::placement {

// The largest sum of lifetimes (in sections) that is searched: beyond it the index of the search takes too much
// memory, and the steps do not suffice for one descent.
constexpr int64_t kMaxSearchEntries = int64_t{1} << 25;

// Returns a solution no higher than `start`; `start` itself if the budget does not suffice for a lower one.
Solution tighten(const Problem& problem, const Solution& start, StepBudget& budget);

}  // namespace layermem::planning::placement
