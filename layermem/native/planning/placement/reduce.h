// The part without search: residencies alive all the time (weights, gradients, momentum) are stacked at the bottom.
//
// The height of an optimal solution does not change: such a residency divides every solution into a part below and a
// part above it, which can be swapped.  That requires level ground, so the fixed residencies must fill everything below
// a common level, or there must be none.
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

// Returns the solution of the whole problem that corresponds to a solution of the reduced one.
Solution expand(const Problem& problem, const Reduction& reduction, const Solution& solution);

// Returns, per section, the lowest level above all fixed residencies (and above everything beneath them).
std::vector<Granules> ground_levels(const Problem& problem);

}  // namespace layermem::planning::placement
