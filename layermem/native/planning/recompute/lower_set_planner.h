// The recomputation planner: least recomputation within a budget, and the least budget, over chains of lower sets.
//
// One planner serves many budgets: the costs of segments are computed when a search first needs them, and stored.
// Families are searched from the smallest up, and each search is limited by the result of the one before it:
//
//      approx     limit: what Lagrangian bounds prove necessary, raised until a chain fits
//        v        best so far
//      extended   limit: the recomputation of the best so far
//        v        ...
//      exact      ... and its result is optimal, since no segment above the limit can be part of a better chain
//
// Source: Kusumoto et al. 2019 (sections 4.2 and 4.3), with sets sorted by size.  The search is in chain_search.h, the
// model of a segment in liveness/segment_costs.h.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "planning/recompute/chain_search.h"

namespace layermem::planning::recompute {

struct ChainPlan {
    Chain chain;
    Quanta recompute = 0;
    Bytes kept = 0;       // M(U_k): bytes kept when the forward is done
    Bytes peak = 0;       // by the model: max over segments of M(U_{i-1}) + peak
    bool proven = false;  // no chain of the family is better
};

class LowerSetPlanner {
  public:
    LowerSetPlanner(StepGraph graph, Family family, liveness::Model model, size_t max_sets,
                    const std::vector<Node>* ends);

    // Each question concerns the chains of a family `upto`: the planner's own, or a smaller one.
    //
    // Returns the best chain within `budget_bytes`, or none; then proven_infeasible() returns whether none exists.
    std::optional<ChainPlan> solve(Bytes budget_bytes, Objective objective, Family upto, Deadline& deadline);
    // Returns a chain of least peak; `proven` if no chain of the family needs less.
    ChainPlan minimum(Family upto, Deadline& deadline);
    bool proven_infeasible() const { return proven_infeasible_; }
    // Returns whether a chain may fit in `budget_bytes`: true if the deadline comes first.  It is quicker than solve().
    bool may_fit(Bytes budget_bytes, Family upto, Deadline& deadline);

    Family family() const { return family_; }
    const StepGraph& graph() const { return graph_; }
    const LowerSets& sets() const { return sets_; }
    liveness::SegmentCosts& costs() { return costs_; }

  private:
    ChainSearch search(const ChainQuery& query, Quanta max_recompute, Deadline& deadline);
    void improve(const ChainQuery& query, std::optional<ChainPlan>& best, Deadline& deadline);
    const std::optional<ChainPlan>* find_solved(Bytes budget_bytes, Objective objective, Family family) const;
    std::optional<ChainPlan> find_first_chain(const ChainQuery& query, Deadline& deadline);
    void minimize_peak(Family upto, ChainPlan& best, Deadline& deadline);
    ChainPlan evaluate_chain(Chain chain);
    ChainPlan plan_one_segment();

    const StepGraph graph_;
    const Family family_;
    const LowerSets sets_;
    liveness::SegmentCosts costs_;
    SegmentGraph segments_;
    Quanta max_recompute_;  // of any chain: each node once
    bool proven_infeasible_ = false;
    // By family:
    Bytes infeasible_bytes_[kFamilies] = {-1, -1, -1};  // no chain fits in these, by may_fit()
    std::optional<ChainPlan> minimum_[kFamilies];
    std::map<std::pair<Objective, Bytes>, std::optional<ChainPlan>> solved_[kFamilies];
};

}  // namespace layermem::planning::recompute
