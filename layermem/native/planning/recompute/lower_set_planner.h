// The recomputation planner: least recomputation within a budget, and the least budget, over chains of lower sets.
//
// Prepared once, asked for many budgets: what segments cost is found when it is first wanted and remembered.
// Families are searched from the smallest up, and a search never looks beyond what the one before it found:
//
//      approx     time allowed: what prices prove to be needed, and ever more, until something fits
//        v        best so far
//      extended   time allowed: that of the best so far
//        v        ...
//      exact      ... and what it finds is optimal, for no step above the time allowed can be part of a better chain
//
// Source: Kusumoto et al. 2019 (sections 4.2 and 4.3), with sets sorted by size.  The search is in
// chain_search.h, the model of a segment in liveness/segment_costs.h.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "planning/recompute/chain_search.h"

namespace layermem::planning {

struct ChainPlan {
    std::vector<int> chain;   // indices of sets, without {}, ending in V
    Ticks recompute = 0;
    Bytes kept = 0;           // M(U_k)
    Bytes peak = 0;           // by the model: max over segments of M(U_{i-1}) + peak
    bool proven = false;      // no chain of the family does better
};

class LowerSetPlanner {
  public:
    LowerSetPlanner(StepGraph graph, Family family, Model model, size_t max_sets, const std::vector<Node>* ends);

    // The best chain within `budget` bytes, or none.  Without one, `proven_infeasible()` tells if none exists.
    std::optional<ChainPlan> solve(Bytes budget, Objective objective, Watch& watch);
    // A chain of least peak; `proven` if no chain of the family needs less.
    ChainPlan minimum(Watch& watch);
    bool proven_infeasible() const { return proven_infeasible_; }

    const StepGraph& graph() const { return graph_; }
    const LowerSets& sets() const { return sets_; }
    SegmentCosts& costs() { return costs_; }
    size_t segments_known() const { return arcs_.count(); }
    size_t segments_settled() const { return arcs_.settled(); }

  private:
    Search search(const Question& question, Ticks allowed, Watch& watch);
    void improve(const Question& question, std::optional<ChainPlan>& best, Watch& watch);
    std::optional<ChainPlan> first_best(const Question& question, Watch& watch);
    void least_peak(Family upto, ChainPlan& best, Watch& watch);
    ChainPlan measured(std::vector<int> chain);
    ChainPlan keep_everything();

    const StepGraph graph_;
    const Family family_;
    const LowerSets sets_;
    SegmentCosts costs_;
    Arcs arcs_;
    Ticks most_;  // no chain recomputes longer
    bool proven_infeasible_ = false;
    std::optional<ChainPlan> minimum_;
};

}  // namespace layermem::planning
