#include "planning/recompute/lower_set_planner.h"

#include <algorithm>

namespace layermem::planning {
namespace {
constexpr size_t kQuickWidth = 16;  // states per set of the search that bounds the full one
}

LowerSetPlanner::LowerSetPlanner(StepGraph graph, Family family, Model model, size_t max_sets,
                                 const std::vector<Node>* ends)
    : graph_(std::move(graph)),
      family_(family),
      sets_(graph_, family, max_sets, ends),
      costs_(graph_, sets_, model),
      arcs_(sets_, costs_),
      most_(0) {
    for (const NodeInfo& node : graph_.nodes) most_ += std::max(node.ticks, node.replay_ticks);
}

Search LowerSetPlanner::search(const Question& question, Ticks allowed, Watch& watch) {
    return Search(sets_, arcs_, costs_.inputs(), question, allowed, watch);
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

// Where no chain is known yet: the time allowed grows from the least that prices prove, so that few arcs are settled
// before the first chain is found, which then is the best.
std::optional<ChainPlan> LowerSetPlanner::first_best(const Question& question, Watch& watch) {
    Ticks allowed = std::max<Ticks>(1, most_ / 40);
    while (true) {
        Search attempt = search(question, allowed, watch);
        if (auto chain = attempt.best()) return measured(std::move(*chain));
        if (allowed >= most_) return std::nullopt;
        const auto proven = static_cast<Ticks>(attempt.bound());
        allowed = proven > allowed ? proven + proven / 25 : allowed + allowed / (attempt.out_of_reach() ? 1 : 12);
        allowed = std::min(allowed + 1, most_);
    }
}

void LowerSetPlanner::improve(const Question& question, std::optional<ChainPlan>& best, Watch& watch) {
    if (question.objective == Objective::memory) {
        if (auto chain = search(question, most_, watch).best()) best = measured(std::move(*chain));
        return;
    }
    if (!best) {
        best = first_best(question, watch);
        return;
    }
    Search full = search(question, best->recompute, watch);
    if (auto chain = full.quick(kQuickWidth)) {
        ChainPlan found = measured(std::move(*chain));
        full.allow(found.recompute);
        if (found.recompute < best->recompute) best = std::move(found);
    }
    if (auto chain = full.best()) best = measured(std::move(*chain));
}

std::optional<ChainPlan> LowerSetPlanner::solve(Bytes budget, Objective objective, Watch& watch) {
    std::optional<ChainPlan> best;
    proven_infeasible_ = false;
    try {
        for (int tier = 0; tier <= static_cast<int>(family_); ++tier)
            improve({static_cast<Family>(tier), budget, objective}, best, watch);
        proven_infeasible_ = !best && !sets_.truncated();
        if (best) best->proven = !sets_.truncated();
    } catch (const Watch::TimeUp&) {
        if (!best && minimum_ && minimum_->peak <= budget) {
            best = minimum_;
            best->proven = false;
        }
    }
    return best;
}

// ---- the least budget ---------------------------------------------------------------------------------------------

// Budgets from the least conceivable one up, until a chain fits; then halving, with each chain's own peak as the
// upper end.  Small budgets come first because few segments need to be looked at for them.  A larger family seldom has
// a leaner chain, so there the first budget is a byte less than is known to do.
void LowerSetPlanner::least_peak(Family upto, ChainPlan& best, Watch& watch) {
    Bytes low = costs_.floor(), high = best.peak;
    Bytes probe = upto == Family::approx ? std::min(high - 1, low + low / 4 + 1) : high - 1;
    while (low < high) {
        const Reach reach(sets_, arcs_, costs_.inputs(), upto, probe, most_, watch);
        if (reach.hopeless()) {
            low = probe + 1;
        } else {
            best = measured(reach.leanest());
            high = best.peak;
        }
        const bool rising = upto == Family::approx && high > low + low / 2;
        probe = rising ? std::min(high - 1, low + low / 4 + 1) : low + (high - low) / 2;
    }
}

ChainPlan LowerSetPlanner::minimum(Watch& watch) {
    if (minimum_ && minimum_->proven) return *minimum_;
    if (!minimum_) minimum_ = keep_everything();
    try {
        for (int tier = 0; tier <= static_cast<int>(family_); ++tier)
            least_peak(static_cast<Family>(tier), *minimum_, watch);
        minimum_->proven = !sets_.truncated();
    } catch (const Watch::TimeUp&) {
    }
    return *minimum_;
}

}  // namespace layermem::planning
