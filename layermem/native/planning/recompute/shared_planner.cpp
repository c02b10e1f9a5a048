// Locking and reports.  Nothing here searches: LowerSetPlanner does, and SegmentCosts evaluates.
//
// One mutex guards the planner: searches share the stored costs of segments and the working memory that evaluates them.
// Callers hold no GIL while they wait for it (bindings/bind_recompute.cpp).
#include "planning/recompute/shared_planner.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace layermem::planning::recompute {
namespace {

// finish() checks the graph and may be repeated, so it does not matter whether the caller has called it.
StepGraph finish(StepGraph graph) {
    graph.finish();
    return graph;
}

}  // namespace

SharedPlanner::SharedPlanner(StepGraph graph, Family family, liveness::Model model, size_t max_sets,
                             const std::optional<std::vector<Node>>& ends)
    : planner_(finish(std::move(graph)), family, model, max_sets, ends ? &*ends : nullptr) {}

std::optional<ChainReport> SharedPlanner::solve(Bytes budget_bytes, Objective objective, Family upto,
                                                Seconds step_seconds, const Interrupt& interrupt) {
    require_family(upto);
    const std::lock_guard<std::mutex> lock(mutex_);
    Deadline deadline(step_seconds, interrupt);
    auto plan = planner_.solve(budget_bytes, objective, upto, deadline);
    searched_ = searched_ + deadline.used();
    if (!plan) return std::nullopt;
    return report(std::move(*plan), deadline);
}

ChainReport SharedPlanner::minimum(Family upto, Seconds step_seconds, const Interrupt& interrupt) {
    require_family(upto);
    const std::lock_guard<std::mutex> lock(mutex_);
    Deadline deadline(step_seconds, interrupt);
    auto plan = planner_.minimum(upto, deadline);
    searched_ = searched_ + deadline.used();
    return report(std::move(plan), deadline);
}

bool SharedPlanner::may_fit(Bytes budget_bytes, Family upto, Seconds step_seconds, const Interrupt& interrupt) {
    require_family(upto);
    const std::lock_guard<std::mutex> lock(mutex_);
    Deadline deadline(step_seconds, interrupt);
    const bool may_fit = planner_.may_fit(budget_bytes, upto, deadline);
    searched_ = searched_ + deadline.used();
    return may_fit;
}

SegmentReport SharedPlanner::segment(SetIndex lower, SetIndex upper) {
    // The sets are constant after construction, so they are read without the mutex.
    const LowerSets& sets = planner_.sets();
    if (lower < 0 || upper <= lower || upper >= sets.size() || !sets.subset(lower, upper))
        throw std::out_of_range("segment() takes the indices of two lower sets, the first inside the second");
    const std::lock_guard<std::mutex> lock(mutex_);
    liveness::SegmentCosts& costs = planner_.costs();
    const liveness::Segment exact = costs.evaluate(lower, upper);
    // A bound may stop early.  Both extremes are computed: one never stops, one stops at the first number.
    constexpr int64_t kNeverStop = std::numeric_limits<int64_t>::max() / 4;
    constexpr int64_t kStopAtOnce = -1;
    auto peak_bound = [&](Bytes stop_above) { return costs.peak_bound(lower, upper, stop_above); };
    SegmentReport out;
    out.recompute = planner_.graph().time_of(exact.recompute);
    out.kept = exact.kept;
    out.peak = exact.peak;
    out.peak_bound = std::max(peak_bound(kNeverStop), peak_bound(kStopAtOnce));
    return out;
}

void SharedPlanner::require_family(Family upto) const {
    if (upto > planner_.family()) throw std::invalid_argument("the planner has no sets of a family that large");
}

// The sets are constant after construction: no lock.
std::vector<std::vector<Node>> SharedPlanner::members_of_sets() const {
    std::vector<std::vector<Node>> out;
    out.reserve(static_cast<size_t>(planner_.sets().size()));
    for (SetIndex set = 0; set < planner_.sets().size(); ++set) out.push_back(planner_.sets().members(set));
    return out;
}

ChainReport SharedPlanner::report(ChainPlan plan, const Deadline& deadline) {
    // Called with the mutex held: actions() uses the working memory of the segment costs.
    ChainReport out;
    for (SetIndex set : plan.chain) out.lower_sets.push_back(planner_.sets().members(set));
    out.recompute_time = planner_.graph().time_of(plan.recompute);
    // The peak of the actions is computed independently of the model's peak, which the budget bounds.
    out.actions = planner_.costs().actions(plan.chain);
    out.peak_bytes = liveness::compute_peak(planner_.graph(), out.actions);
    out.plan = std::move(plan);
    out.seconds = deadline.elapsed();
    return out;
}

}  // namespace layermem::planning::recompute
