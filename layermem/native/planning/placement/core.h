// The part of a problem that decides its height: residencies alive where most bytes are.
//
// A deep net has thousands of short residencies at ticks that are far from the peak.  They fit around the others
// whatever the others' offsets are, so the search ignores them: it solves the core, and the rest is packed around the
// solution of the core.
#pragma once

#include <vector>

#include "planning/placement/greedy.h"
#include "planning/placement/step_budget.h"

namespace layermem::planning::placement {

struct Core {
    Problem problem;                  // with its own sections, and without fixed residencies
    std::vector<ResidencyId> origin;  // per residency of the core: its id in the whole problem
};

// Residencies alive in a section whose load is at least `share` of the largest load.  The problem must have no fixed
// residencies.
Core extract_core(const Problem& problem, double share);

// A solution of the whole problem that keeps the offsets of its core; the rest is packed greedily.
Solution pack_around_core(const Problem& problem, const Core& core, const Solution& solution, StepBudget& budget);

}  // namespace layermem::planning::placement
