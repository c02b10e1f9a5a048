// The actions that a plan of the recomputation planner runs, and the exact peak of a list of actions.
#pragma once

#include <cstdint>
#include <vector>

#include "planning/step_graph.h"

namespace layermem::planning::liveness {

enum class ActionKind : uint8_t { forward, recompute, backward };

struct Action {
    ActionKind kind;
    int32_t id;  // a node, or a step for `backward`
};

// Returns the most bytes alive while the actions run: each item counts from the write that a later read needs to its
// last read.  It shares no code with SegmentCosts, except for the rule of overlays, so that tests can compare the two.
Bytes compute_peak(const StepGraph& graph, const std::vector<Action>& actions);

}  // namespace layermem::planning::liveness
