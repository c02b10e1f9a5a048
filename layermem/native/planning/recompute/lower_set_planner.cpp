// The order of searches: families from the smallest up, limits from earlier results, and the result at a deadline.
#include "planning/recompute/lower_set_planner.h"

#include <algorithm>

namespace layermem::planning::recompute {
namespace {

constexpr size_t kBeamWidth = 16;     // labels per set of a search that comes before the exact one
constexpr Quanta kFirstShare = 40;    // the first limit is this part of the recomputation of everything
constexpr Quanta kProvenMargin = 25;  // a proven bound is raised by this part of it,
constexpr Quanta kUnprovenStep = 12;  // another limit by this one

}  // namespace

LowerSetPlanner::LowerSetPlanner(StepGraph graph, Family family, liveness::Model model, size_t max_sets,
                                 const std::vector<Node>* ends)
    : graph_(std::move(graph)),
      family_(family),
      sets_(graph_, family, max_sets, ends),
      costs_(graph_, sets_, model),
      segments_(sets_, costs_),
      max_recompute_(0) {
    for (const NodeInfo& node : graph_.nodes) max_recompute_ += std::max(node.quanta, node.recompute_quanta);
}

ChainSearch LowerSetPlanner::search(const ChainQuery& query, Quanta max_recompute, Deadline& deadline) {
    return ChainSearch(sets_, segments_, costs_.inputs(), query, max_recompute, deadline);
}

// Adds up the exact costs of the chain, segment by segment.
ChainPlan LowerSetPlanner::evaluate_chain(Chain chain) {
    ChainPlan plan;
    plan.kept = costs_.inputs();
    SetIndex lower = 0;
    for (SetIndex upper : chain) {
        const liveness::Segment segment = costs_.evaluate(lower, upper);
        plan.peak = std::max(plan.peak, plan.kept + segment.peak);
        plan.kept += segment.kept;
        plan.recompute += segment.recompute;
        lower = upper;
    }
    plan.chain = std::move(chain);
    return plan;
}

// Without cuts nothing is recomputed in the live model.  A graph without nodes has one lower set and an empty chain.
ChainPlan LowerSetPlanner::plan_one_segment() {
    return evaluate_chain(sets_.size() > 1 ? Chain{sets_.size() - 1} : Chain{});
}

// ---- the least recomputation within a budget ----------------------------------------------------------------------

// Used while no chain is known: the limit grows from the proven bound, so that few edges are made exact before the
// first chain is found, which then is the best.
std::optional<ChainPlan> LowerSetPlanner::find_first_chain(const ChainQuery& query, Deadline& deadline) {
    Quanta limit = std::max<Quanta>(1, max_recompute_ / kFirstShare);
    while (true) {
        ChainSearch attempt = search(query, limit, deadline);
        if (auto chain = attempt.find_best()) return evaluate_chain(std::move(*chain));
        if (limit >= max_recompute_) return std::nullopt;
        const auto proven = static_cast<Quanta>(attempt.lower_bound());
        const Quanta step = attempt.is_unreachable() ? limit : limit / kUnprovenStep;
        limit = proven > limit ? proven + proven / kProvenMargin : limit + step;
        limit = std::min(limit + 1, max_recompute_);
    }
}

// Searches one more tier.  Before a search of all lower sets, which may reach its deadline, a beam search finds an
// answer.
void LowerSetPlanner::improve(const ChainQuery& query, std::optional<ChainPlan>& best, Deadline& deadline) {
    if (query.objective == Objective::memory) {
        if (auto chain = search(query, max_recompute_, deadline).find_best()) best = evaluate_chain(std::move(*chain));
        return;
    }
    if (!best) {
        best = find_first_chain(query, deadline);
        return;
    }
    ChainSearch full = search(query, best->recompute, deadline);
    auto chain = query.upto == Family::exact ? full.beam_search(kBeamWidth) : std::nullopt;
    if (chain) {
        ChainPlan plan = evaluate_chain(std::move(*chain));
        full.lower_max_recompute(plan.recompute);
        if (plan.recompute < best->recompute) best = std::move(plan);
    }
    chain = full.find_best();
    if (chain) best = evaluate_chain(std::move(*chain));
}

// Returns the answer of an earlier question, for this budget or for a larger one whose chain also fits this one: the
// best chain (and the first of equals) is also the best among fewer.  If none fits the larger budget, none fits this
// one.
const std::optional<ChainPlan>* LowerSetPlanner::find_solved(Bytes budget_bytes, Objective objective,
                                                             Family family) const {
    const auto& solved = solved_[static_cast<int>(family)];
    const auto known = solved.lower_bound({objective, budget_bytes});
    if (known == solved.end() || known->first.first != objective) return nullptr;
    const std::optional<ChainPlan>& plan = known->second;
    return !plan || plan->peak <= budget_bytes ? &plan : nullptr;
}

std::optional<ChainPlan> LowerSetPlanner::solve(Bytes budget_bytes, Objective objective, Family upto,
                                                Deadline& deadline) {
    // Families include each other, so only the last tier decides; the earlier ones make it quick.
    std::optional<ChainPlan> best;
    const bool is_infeasible = budget_bytes <= infeasible_bytes_[static_cast<int>(upto)];
    proven_infeasible_ = is_infeasible && !sets_.truncated();
    if (is_infeasible) return best;
    try {
        for (int tier = 0; tier <= static_cast<int>(upto); ++tier) {
            const auto family = static_cast<Family>(tier);
            if (const auto* known = find_solved(budget_bytes, objective, family)) {
                best = *known;
                continue;
            }
            improve({family, budget_bytes, objective}, best, deadline);
            solved_[tier][{objective, budget_bytes}] = best;
        }
        proven_infeasible_ = !best && !sets_.truncated();
        if (best) best->proven = !sets_.truncated();
    } catch (const Deadline::Exceeded&) {
        // The plan of least peak may be known from an earlier call, and is better than none.
        const std::optional<ChainPlan>& minimum = minimum_[static_cast<int>(upto)];
        if (!best && minimum && minimum->peak <= budget_bytes) {
            best = minimum;
            best->proven = false;
        }
    }
    return best;
}

// ---- the least budget ---------------------------------------------------------------------------------------------

// Bisects between `low`, the least budget that may be feasible, and `high`, the peak of the best chain.  At first the
// budgets rise from `low`, because small ones need few edges.  A larger family seldom has a chain of lower peak, so its
// first budget is a byte below the known one.
void LowerSetPlanner::minimize_peak(Family upto, ChainPlan& best, Deadline& deadline) {
    Bytes low = costs_.floor();
    Bytes high = best.peak;
    Bytes probe = upto == Family::approx ? std::min(high - 1, low + low / 4 + 1) : high - 1;
    // Invariant: no chain fits in less than `low`, and `best` needs `high`.
    while (low < high) {
        const Reachability reach(sets_, segments_, costs_.inputs(), upto, probe, max_recompute_, deadline);
        if (reach.is_infeasible()) {
            low = probe + 1;
        } else {
            best = evaluate_chain(reach.min_kept_chain());
            high = best.peak;
        }
        const bool is_rising = upto == Family::approx && high > low + low / 2;
        probe = is_rising ? std::min(high - 1, low + low / 4 + 1) : low + (high - low) / 2;
    }
}

bool LowerSetPlanner::may_fit(Bytes budget_bytes, Family upto, Deadline& deadline) {
    const std::optional<ChainPlan>& minimum = minimum_[static_cast<int>(upto)];
    Bytes& infeasible_bytes = infeasible_bytes_[static_cast<int>(upto)];
    if (minimum && minimum->peak <= budget_bytes) return true;
    if (budget_bytes <= infeasible_bytes || budget_bytes < costs_.floor() || (minimum && minimum->proven)) return false;
    try {
        // The chains of a small family are quickly searched, and often one of them fits.
        for (int tier = 0; tier <= static_cast<int>(upto); ++tier) {
            const auto family = static_cast<Family>(tier);
            const Reachability reach(sets_, segments_, costs_.inputs(), family, budget_bytes, max_recompute_, deadline);
            if (!reach.is_infeasible()) return true;
        }
    } catch (const Deadline::Exceeded&) {
        return true;
    }
    infeasible_bytes = budget_bytes;
    return false;
}

ChainPlan LowerSetPlanner::minimum(Family upto, Deadline& deadline) {
    std::optional<ChainPlan>& minimum = minimum_[static_cast<int>(upto)];
    if (minimum && minimum->proven) return *minimum;
    if (!minimum) minimum = plan_one_segment();
    try {
        for (int tier = 0; tier <= static_cast<int>(upto); ++tier)
            minimize_peak(static_cast<Family>(tier), *minimum, deadline);
        minimum->proven = !sets_.truncated();
    } catch (const Deadline::Exceeded&) {
        minimum->proven = false;  // the best so far is the answer
    }
    return *minimum;
}

}  // namespace layermem::planning::recompute
