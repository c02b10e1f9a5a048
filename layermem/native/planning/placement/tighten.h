// From a greedy layout towards the bound: exact searches below one height after another, restarted in many orders.
#pragma once

#include "planning/placement/greedy.h"
#include "planning/placement/step_budget.h"

namespace layermem::placing {

// Beyond this sum of lifetimes (in sections) the search would need too much memory and never end a first descent.
constexpr int64_t kMostEntries = int64_t{1} << 25;

// A layout no higher than `start`; `start` itself where the steps do not suffice for a lower one.
Layout tighten(const Problem& problem, const Layout& start, Steps& steps);

}  // namespace layermem::placing
