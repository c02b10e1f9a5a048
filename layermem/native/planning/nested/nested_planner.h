// The least recomputation that walks find within a budget, and the least budget that they reach.
//
//     walks      pairs of exponents x budgets of the walk around the one asked for; the exact live bytes of each result
//                decide whether it fits
//     blocks     orders of the dynamic program over blocks, where the net has bottlenecks (chain_program.h)
//     improve    from the best results, recomputations that a plan can do without are taken out, the dearest first
//     polish     simulated annealing of the best one (polish.h)
//
// A search counts its work in steps, never in seconds: the same input gives the same plan on every machine.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "planning/nested/block_chain.h"
#include "planning/nested/local_search.h"
#include "planning/nested/lookahead.h"
#include "planning/settings.h"

namespace layermem::planning::nested {

struct NestedPlan {
    std::vector<OpId> order;
    Seconds recompute_seconds = 0;
    Bytes live_bytes = 0;
};

// A plan that recomputes and offloads.
struct MixedPlan {
    std::vector<OpId> order;
    std::vector<Gap> decisions;
    Seconds seconds = 0;
    Bytes live_bytes = 0;
};

class NestedPlanner {
  public:
    // The other arguments are those of LookaheadWalk.
    NestedPlanner(LayoutGraph graph, std::vector<OpId> order, const std::vector<BufferId>& evictable,
                  const std::vector<BufferId>& dropped, Position drop_at, int overlays, SearchSettings settings = {});
    NestedPlanner(const NestedPlanner&) = delete;
    NestedPlanner& operator=(const NestedPlanner&) = delete;

    // The plan with the least recomputation that was found within the budget, or none.  `starts` are orders of other
    // planners, which take part.  `work_percent`: of the usual limits of the search; `edits`: that annealing of the best
    // plan tries.
    std::optional<NestedPlan> plan(Bytes budget_bytes, const std::vector<std::vector<OpId>>& starts,
                                   int64_t work_percent, int64_t edits, const Interrupt& interrupt);
    // Those of walks and of the dynamic program that fit, which plan() begins with; the last ones are kept.
    const std::vector<NestedPlan>& walked(Bytes budget_bytes, int64_t work_percent, const Interrupt& interrupt);
    // The quickest plan that was found within the budget, copies to the host included, or none.  `limit_seconds` are
    // those of a plan that is known: what takes longer before it is improved is left.  It begins with walks and `starts`,
    // and where none of these leads to a plan with the dynamic program over blocks.
    std::optional<MixedPlan> mixed_plan(Bytes budget_bytes, const std::vector<std::vector<OpId>>& starts,
                                        const Offloads& offloads, Seconds limit_seconds,
                                        const Interrupt& interrupt) const;
    // No mixed plan that runs the ops in this order needs fewer bytes: those of an op's operands and workspace, less all
    // its overlays, and of what is in use then and can neither be evicted nor copied to the host.
    Bytes least_mixed_bytes(const Offloads& offloads) const;
    // The plan of the fewest live bytes that was found.
    NestedPlan minimum(const Interrupt& interrupt);

  private:
    struct Walked {  // plans of walks for a budget that fit
        Bytes budget_bytes = -1;
        int64_t work_percent = 0;
        std::vector<NestedPlan> plans;
    };
    void visit_chain_orders(const OrderItems& items, const std::vector<Bytes>& levels, const Interrupt& interrupt,
                            const std::function<Bytes(std::vector<OpId>)>& live_bytes) const;
    NestedPlan measure(std::vector<OpId> order);
    NestedPlan remove_needless(NestedPlan plan, Bytes budget_bytes, int64_t work_end, const Interrupt& interrupt);
    int64_t work() const { return walk_.steps() + measured_; }

    const SearchSettings settings_;
    const LayoutGraph graph_;
    const std::vector<OpId> order_;
    const int overlays_;
    const std::vector<BufferId> evictable_, dropped_;
    const Position drop_at_;
    std::vector<char> is_dropped_;  // per buffer
    LookaheadWalk walk_;
    int64_t measured_ = 0;  // work of measure(), in steps
    NestedPlan last_measured_;
    Walked last_walked_;  // asked for again with other starts
};

}  // namespace layermem::planning::nested
