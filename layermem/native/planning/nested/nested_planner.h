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

    // Returns the plan with the least recomputation that was found within the budget, or none.  `starts` are orders of
    // other planners, which are candidates too.  The search takes at most `steps_share` of its usual steps; `edits` limits
    // the annealing of the best plan, which may also change the order of first runs if it `is_free`.
    std::optional<NestedPlan> plan(Bytes budget_bytes, const std::vector<std::vector<OpId>>& starts, double steps_share,
                                   int64_t edits, bool is_free, const Interrupt& interrupt);
    // Returns the fitting results of walks and of the dynamic program, the starts of plan(); the last are cached.
    const std::vector<NestedPlan>& walked(Bytes budget_bytes, double steps_share, const Interrupt& interrupt);
    // Returns the quickest plan that was found within the budget, copies to the host included, or none.  Candidates
    // that take longer than `limit_seconds`, those of a known plan, before they are improved are skipped.  The starts
    // are walks and `starts`; if none of these leads to a plan, the dynamic program over blocks.
    std::optional<MixedPlan> mixed_plan(Bytes budget_bytes, const std::vector<std::vector<OpId>>& starts,
                                        const Offloads& offloads, Seconds limit_seconds,
                                        const Interrupt& interrupt) const;
    // Returns bytes below which no mixed plan with this order of ops can be: the operands and workspace of an op, less
    // all its overlays, plus the values in use that can neither be evicted nor copied to the host.
    Bytes least_mixed_bytes(const Offloads& offloads) const;
    // Returns the plan of the fewest live bytes that was found.
    NestedPlan minimum(const Interrupt& interrupt);

  private:
    struct Walked {  // plans of walks for a budget that fit
        Bytes budget_bytes = -1;
        double steps_share = 0;
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
