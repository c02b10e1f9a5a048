// Simulated annealing over orders with recomputations: less recomputation within the same budget.
//
//     remove    a recomputation, and those that ran only for it
//     insert    the recomputation of an op's input, right before the op, with the recomputations that it needs
//     move      the one, then the other
//     exchange  a value that lies over many ops is recomputed, and in its bytes as much is kept as fits: a large
//               boundary gives way to several recomputations at once
//
// If an edit exceeds the budget, values that the op at the peak does not touch are recomputed before their next use,
// until it fits or is undone.  The order of the ops' first runs stays, unless it is free:
//
//     shift     an op, between those that have to stay before and after it
//
// Random numbers and temperatures are computed from integers, products and quotients: the same input gives the same
// plan on every machine.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "planning/liveness/layout.h"
#include "planning/settings.h"

namespace layermem::planning::nested {

// `order` runs within `budget_bytes`; `evictable` buffers may be recomputed, but writers of `dropped` buffers are not
// moved.  `edits` is the number of attempts; `is_free` allows ops to run in another order.  `interrupt` is called now
// and then; it may throw.
std::vector<liveness::OpId> polish(const liveness::LayoutGraph& graph, const std::vector<liveness::OpId>& order,
                                   const std::vector<liveness::BufferId>& evictable,
                                   const std::vector<liveness::BufferId>& dropped, int overlays, Bytes budget_bytes,
                                   int64_t edits, bool is_free, const SearchSettings& settings,
                                   const std::function<void()>& interrupt);

// Returns an order of the same ops with a lower peak, by simulated annealing of shifts until it is within
// `budget_bytes`; the order itself if none is found.
std::vector<liveness::OpId> lowest_order(const liveness::LayoutGraph& graph, const std::vector<liveness::OpId>& order,
                                         int overlays, Bytes budget_bytes, int64_t edits,
                                         const SearchSettings& settings, const std::function<void()>& interrupt);

}  // namespace layermem::planning::nested
