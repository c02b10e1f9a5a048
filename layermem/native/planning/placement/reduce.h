// What needs no search: residencies alive all the time (weights, gradients, momentum) are stacked at the bottom.
//
// The height of an optimal solution does not change: such a residency parts every solution into what lies below it and
// what lies above it, and the two can be swapped.  That holds on level ground only, so the fixed residencies must fill
// everything below a common level, or there must be none.
#pragma once

#include <vector>

#include "planning/placement/problem.h"

namespace layermem::planning::placement {

struct Reduction {
    Problem problem;                  // the other residencies, above a raised floor
    std::vector<ResidencyId> origin;  // per residency of the reduced problem: its id in the whole one
    Solution stacked;                 // of the whole problem; only the offsets of the stacked residencies are set
};

Reduction stack_full_lifetime(const Problem& problem);

// The solution of the whole problem that belongs to a solution of the reduced one.
Solution expand(const Problem& problem, const Reduction& reduction, const Solution& solution);

// Per section, the lowest level above all fixed residencies (and above whatever lies beneath them).
std::vector<Granules> ground_levels(const Problem& problem);

}  // namespace layermem::planning::placement
