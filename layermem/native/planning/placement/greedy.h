// Greedy placement: one pass over the residencies in a fixed order, each put into a gap between those already placed.
#pragma once

#include <string>
#include <vector>

#include "planning/placement/offset_index.h"
#include "planning/placement/step_budget.h"

namespace layermem::planning::placement {

// An order by one property of a residency, largest first; `name` appears in the method of a result.
struct OrderingRule {
    const char* name;
    Order (*order)(const Problem&);
};
const std::vector<OrderingRule>& ordering_rules();

// Steps are counted but never end a pass early: the solution is always complete.
Solution pack(const Problem& problem, const Order& order, Fit fit, StepBudget& budget);

struct NamedSolution {
    Solution solution;
    std::string method;
};
// Returns the lowest solution over all rules and fits; the first one that reaches the target ends the trials.
NamedSolution pack_best(const Problem& problem, StepBudget& budget);

}  // namespace layermem::planning::placement
