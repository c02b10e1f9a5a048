// The part of a problem that decides its height: blocks alive where most bytes are.
//
// A deep net has thousands of short residencies at ticks that are far from full.  They find room around the others
// whatever those look like, so the search need not see them: it solves the core, and the rest is packed around it.
#pragma once

#include <vector>

#include "planning/placement/greedy.h"
#include "planning/placement/step_budget.h"

namespace layermem::placing {

struct Core {
    Problem problem;              // its own sections; no pins
    std::vector<int32_t> origin;  // which block of the whole problem each of its blocks is
};

// Blocks alive in a section whose load is at least `share` of the fullest one's.  The problem must have no pins.
Core core_of(const Problem& problem, double share);

// A layout of the whole problem that keeps the layout of its core; as low as packing the rest greedily gets it.
Layout pack_around(const Problem& problem, const Core& core, const Layout& layout, Steps& steps);

}  // namespace layermem::placing
