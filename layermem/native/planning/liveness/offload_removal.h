// Removal of unnecessary offloads.
//
// fewest_offloads   the first ones of a list, as many as make it fit
// remove_offloads   taken out group by group, while the plan fits and becomes no slower:
//
//     decisions   a b c d e f      groups of them: {a}, {b c}, {e f}, {b}, those of one group go together
//     tried       {a}: fits, no slower   {b c}: over the budget   {e f}: fits, no slower   {b}: slower
//     left        b c d
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "planning/liveness/layout.h"

namespace layermem::planning::liveness {

// Returns how many of `offloads` have to be added to `decisions` for the plan to fit, or none if all are too few.
// Copies hold bytes too, so more of them may need more: the number is doubled until the plan fits, then bisected.
std::optional<size_t> fewest_offloads(const LayoutGraph& graph, const Order& order, const std::vector<Gap>& decisions,
                                      const std::vector<Gap>& offloads, const CopyTiming& timing, Bytes budget_bytes);

struct OffloadRemoval {
    std::vector<int32_t> removed;  // numbers of groups, ascending
    Seconds seconds;               // estimated, of the remaining plan
};

// Tries groups of positions in `decisions` in turn, without groups that are already gone with others.  A group with a
// last gap changes the state on the host between steps: `fits_beside` then returns whether other graphs of the arena
// fit without the given groups.  It may be empty, and so may `interrupt`, which is called now and then and may throw.
OffloadRemoval remove_offloads(const LayoutGraph& graph, const Order& order, const std::vector<Gap>& decisions,
                               const std::vector<std::vector<int32_t>>& groups, const CopyTiming& timing,
                               Bytes budget_bytes, const std::function<bool(const std::vector<int32_t>&)>& fits_beside,
                               const std::function<void()>& interrupt);

}  // namespace layermem::planning::liveness
