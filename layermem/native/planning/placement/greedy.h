// One pass over the blocks in a fixed order, each put into a gap between those already there.
#pragma once

#include <string>
#include <vector>

#include "planning/placement/offset_index.h"
#include "planning/placement/step_budget.h"

namespace layermem::placing {

using Order = std::vector<int32_t>;  // a permutation of the blocks

// An order by one property of a block, largest first; `name` is what a result calls it.
struct Rule {
    const char* name;
    Order (*order)(const Problem&);
};
const std::vector<Rule>& rules();

// Steps are counted but never cut a pass short: a layout always comes back whole.
Layout pack(const Problem& problem, const Order& order, Fit fit, Steps& steps);

// The lowest layout over all rules and fits, and which one it was; the first that reaches the target ends it.
struct Packed {
    Layout layout;
    std::string method;
};
Packed pack_best(const Problem& problem, Steps& steps);

}  // namespace layermem::placing
