#include "planning/recompute.h"

#include <algorithm>

namespace layermem {
namespace {
constexpr size_t kQuickWidth = 16;  // states per set of the search that bounds the full one
}

LowerSetPlanner::LowerSetPlanner(StepGraph graph, Family family, Model model, size_t max_sets)
    : graph_(std::move(graph)),
      family_(family),
      sets_(graph_, family, max_sets),
      costs_(graph_, sets_, model),
      arcs_(sets_, costs_),
      most_(0) {
    for (const NodeInfo& node : graph_.nodes) most_ += std::max(node.ticks, node.replay_ticks);
}

Search LowerSetPlanner::search(Family upto, Bytes budget, Ticks allowed, Watch& watch) {
    return Search(sets_, arcs_, costs_.inputs(), upto, budget, allowed, watch);
}

// What the chain costs, segment by segment.
ChainPlan LowerSetPlanner::measured(std::vector<int> chain) {
    ChainPlan plan;
    plan.kept = costs_.inputs();
    int lower = 0;
    for (int upper : chain) {
        const Segment segment = costs_.evaluate(lower, upper);
        plan.peak = std::max(plan.peak, plan.kept + segment.peak);
        plan.kept += segment.kept;
        plan.recompute += segment.recompute;
        lower = upper;
    }
    plan.chain = std::move(chain);
    return plan;
}

ChainPlan LowerSetPlanner::keep_everything() {
    return measured(sets_.size() > 1 ? std::vector<int>{sets_.size() - 1} : std::vector<int>{});
}

// ---- the least recomputation within a budget ----------------------------------------------------------------------

// Looks for a chain where none is known yet: first among those that recompute little.
std::optional<ChainPlan> LowerSetPlanner::first_fit(Family upto, Bytes budget, Watch& watch) {
    for (Ticks allowed = std::max<Ticks>(1, most_ / 40);; allowed = std::min(3 * allowed, most_)) {
        Search attempt = search(upto, budget, allowed, watch);
        auto chain = attempt.quick(kQuickWidth);
        if (!chain) chain = attempt.best(Objective::time);
        if (chain) return measured(std::move(*chain));
        if (allowed == most_) return std::nullopt;
    }
}

void LowerSetPlanner::improve(Family upto, Bytes budget, Objective objective, std::optional<ChainPlan>& best,
                              Watch& watch) {
    if (objective == Objective::memory) {
        if (auto chain = search(upto, budget, most_, watch).best(objective)) best = measured(std::move(*chain));
        return;
    }
    if (!best) best = first_fit(upto, budget, watch);
    if (!best) return;
    Search full = search(upto, budget, best->recompute, watch);
    if (auto chain = full.quick(kQuickWidth)) {
        ChainPlan found = measured(std::move(*chain));
        full.allow(found.recompute);
        if (found.recompute < best->recompute) best = std::move(found);
    }
    if (auto chain = full.best(objective)) best = measured(std::move(*chain));
}

std::optional<ChainPlan> LowerSetPlanner::solve(Bytes budget, Objective objective, Watch& watch) {
    std::optional<ChainPlan> best;
    proven_infeasible_ = false;
    try {
        for (int tier = 0; tier <= static_cast<int>(family_); ++tier)
            improve(static_cast<Family>(tier), budget, objective, best, watch);
        proven_infeasible_ = !best && !sets_.truncated();
        if (best) best->proven = !sets_.truncated();
    } catch (const Watch::TimeUp&) {
    }
    return best;
}

// ---- the least budget ---------------------------------------------------------------------------------------------

// Budgets from the least conceivable one up, until a chain fits; then halving, with each chain's own peak as the
// upper end.  Small budgets come first because few segments need to be looked at for them.
ChainPlan LowerSetPlanner::least_peak(Family upto, ChainPlan best, Watch& watch) {
    Bytes low = costs_.floor(), high = best.peak;
    Bytes probe = std::min(high - 1, low + low / 4 + 1);
    while (low < high) {
        const Search attempt = search(upto, probe, most_, watch);
        if (attempt.hopeless()) {
            low = probe + 1;
        } else {
            best = measured(attempt.leanest());
            high = best.peak;
        }
        const bool rising = high > low + low / 2;
        probe = rising ? std::min(high - 1, low + low / 4 + 1) : low + (high - low) / 2;
    }
    return best;
}

ChainPlan LowerSetPlanner::minimum(Watch& watch) {
    if (minimum_ && minimum_->proven) return *minimum_;
    ChainPlan best = minimum_ ? *minimum_ : keep_everything();
    try {
        for (int tier = 0; tier <= static_cast<int>(family_); ++tier)
            best = least_peak(static_cast<Family>(tier), best, watch);
        best.proven = !sets_.truncated();
    } catch (const Watch::TimeUp&) {
    }
    minimum_ = best;
    return best;
}

}  // namespace layermem
