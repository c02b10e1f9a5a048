// What needs no search: blocks alive all the time (weights, their gradients, momentum) are stacked at the bottom.
//
// No height is lost by it: such a block parts every layout into what lies below it and what lies above it, and the two
// can be swapped.  That holds on flat ground only, so pins must be solid beneath a common level, or there must be none.
#pragma once

#include <vector>

#include "planning/placement/problem.h"

namespace layermem::placing {

struct Reduced {
    Problem problem;              // the other blocks, above a raised floor
    std::vector<int32_t> origin;  // which block of the whole problem each of them is
    Layout stacked;               // offsets of the whole problem, those of the stacked blocks filled in
};

Reduced stack_lifelong(const Problem& problem);

// The layout of the whole problem that a layout of the reduced one comes to.
Layout widen(const Problem& problem, const Reduced& reduced, const Layout& layout);

// Level of each section once the pins, and whatever lies beneath them, are taken.
std::vector<Units> ground_of(const Problem& problem);

}  // namespace layermem::placing
