#include "planning/recompute.h"

#include <algorithm>

namespace layermem {

Watch::Watch(double seconds, std::function<void()> interrupt)
    : begin_(Clock::now()), next_look_(begin_), limit_(seconds), interrupt_(std::move(interrupt)) {}

double Watch::seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

void Watch::tick() {
    if (++count_ % 64) return;
    const auto now = Clock::now();
    if (now < next_look_) return;
    next_look_ = now + std::chrono::milliseconds(10);
    if (interrupt_) interrupt_();
    if (limit_ > 0 && seconds() > limit_) throw TimeUp{};
}

LowerSetPlanner::LowerSetPlanner(StepGraph graph, Family family, Model model, size_t max_sets)
    : graph_(std::move(graph)),
      family_(family),
      model_(model),
      sets_(graph_, family, max_sets),
      costs_(graph_, sets_, model) {
    for (auto& by_source : arcs_) by_source.resize(sets_.size());
}

// ---- arcs: segments computed when first wanted --------------------------------------------------------------------

// All arcs from `from` to sets of `tier` whose peak may be within `limit` (and some that are above it).
const std::vector<LowerSetPlanner::Arc>& LowerSetPlanner::arcs(int from, Family tier, Bytes limit, Watch& watch) {
    Arcs& known = arcs_[static_cast<int>(tier)][from];
    if (limit <= known.complete_to) return known.list;
    std::vector<Arc> fresh;
    for (int to = from + 1; to < sets_.size(); ++to) {
        if (sets_.tier(to) != tier || !sets_.subset(from, to)) continue;
        const Bytes bound = costs_.peak_bound(from, to, limit);
        if (bound > limit || bound <= known.complete_to) continue;
        watch.tick();
        fresh.push_back({to, costs_.evaluate(from, to)});
    }
    segments_known_ += fresh.size();
    known.list.insert(known.list.end(), fresh.begin(), fresh.end());
    known.list.shrink_to_fit();
    known.complete_to = limit;
    return known.list;
}

template <class Visit>
void LowerSetPlanner::each_arc(int from, Family upto, Bytes limit, Watch& watch, Visit visit) {
    for (int tier = 0; tier <= static_cast<int>(upto); ++tier)
        for (const Arc& arc : arcs(from, static_cast<Family>(tier), limit, watch))
            if (arc.segment.peak <= limit) visit(arc);
}

// ---- the two relaxations ------------------------------------------------------------------------------------------

// Per set the least bytes that a chain can have kept when it gets there within the budget.
std::vector<Bytes> LowerSetPlanner::least_kept(Bytes budget, Family upto, Watch& watch, std::vector<int>* parents) {
    std::vector<Bytes> least(sets_.size(), kUnreached);
    if (parents) parents->assign(sets_.size(), -1);
    least[0] = costs_.inputs();
    for (int from = 0; from < sets_.size(); ++from) {
        if (least[from] >= kUnreached || !in(from, upto)) continue;
        each_arc(from, upto, budget - least[from], watch, [&](const Arc& arc) {
            const Bytes kept = least[from] + arc.segment.kept;
            if (kept >= least[arc.to]) return;
            least[arc.to] = kept;
            if (parents) (*parents)[arc.to] = from;
        });
    }
    return least;
}

// Per set a time that no chain goes below from there to V.
std::vector<Ticks> LowerSetPlanner::least_remaining(Bytes budget, Family upto, const std::vector<Bytes>& least,
                                                    Watch& watch) {
    std::vector<Ticks> remaining(sets_.size(), kNoTime);
    remaining.back() = 0;
    for (int from = sets_.size() - 2; from >= 0; --from) {
        if (least[from] >= kUnreached) continue;
        each_arc(from, upto, budget - least[from], watch, [&](const Arc& arc) {
            remaining[from] = std::min(remaining[from], arc.segment.recompute + remaining[arc.to]);
        });
    }
    return remaining;
}

// ---- the program itself -------------------------------------------------------------------------------------------

namespace {

// Leaves the labels that no other beats in both numbers, by growing key and falling bytes.
template <class Label>
void keep_front(std::vector<Label>& labels) {
    std::sort(labels.begin(), labels.end(), [](const Label& a, const Label& b) {
        return a.key != b.key ? a.key < b.key : a.kept < b.kept;
    });
    size_t count = 0;
    for (const Label& label : labels)
        if (count == 0 || label.kept < labels[count - 1].kept) labels[count++] = label;
    labels.resize(count);
}

}  // namespace

std::optional<ChainPlan> LowerSetPlanner::search(Bytes budget, Objective objective, Family upto,
                                                 const ChainPlan* known, Watch& watch) {
    const Ticks sign = objective == Objective::time ? 1 : -1;
    const auto least = least_kept(budget, upto, watch, nullptr);
    if (least.back() >= kUnreached) return std::nullopt;
    std::vector<Ticks> remaining;
    Ticks enough = kNoTime;
    if (objective == Objective::time) {
        remaining = least_remaining(budget, upto, least, watch);
        if (known) enough = known->recompute;
    }
    std::vector<std::vector<Label>> fronts(sets_.size());
    std::vector<size_t> tidy_at(sets_.size(), 64);
    fronts[0].push_back({0, costs_.inputs(), -1, -1});
    for (int from = 0; from < sets_.size() - 1; ++from) {
        auto& front = fronts[from];
        if (front.empty()) continue;
        keep_front(front);
        front.shrink_to_fit();
        each_arc(from, upto, budget - front.back().kept, watch, [&](const Arc& arc) {
            watch.tick();
            auto& target = fronts[arc.to];
            const Ticks step = sign * arc.segment.recompute;
            const Ticks latest = remaining.empty() ? kNoTime : enough - remaining[arc.to];
            // By growing key bytes fall: the labels that fit are the last ones, those in time the first ones.
            const auto fits = std::partition_point(front.begin(), front.end(), [&](const Label& label) {
                return label.kept + arc.segment.peak > budget;
            });
            for (auto label = fits; label != front.end() && label->key + step <= latest; ++label)
                target.push_back({label->key + step, label->kept + arc.segment.kept, from,
                                  static_cast<int>(label - front.begin())});
            if (target.size() < tidy_at[arc.to]) return;
            keep_front(target);
            tidy_at[arc.to] = std::max<size_t>(64, 2 * target.size());
        });
    }
    keep_front(fronts.back());
    if (fronts.back().empty()) return std::nullopt;
    return trace(fronts);
}

ChainPlan LowerSetPlanner::trace(const std::vector<std::vector<Label>>& fronts) const {
    ChainPlan plan;
    int set = sets_.size() - 1, position = 0;
    while (set > 0) {
        plan.chain.push_back(set);
        const Label& label = fronts[set][position];
        set = label.set;
        position = label.parent;
    }
    std::reverse(plan.chain.begin(), plan.chain.end());
    return plan;
}

// Fills in what the chain costs, segment by segment.
void LowerSetPlanner::measure(ChainPlan& plan) {
    plan.kept = costs_.inputs();
    plan.recompute = plan.peak = 0;
    int lower = 0;
    for (int upper : plan.chain) {
        const Segment segment = costs_.evaluate(lower, upper);
        plan.peak = std::max(plan.peak, plan.kept + segment.peak);
        plan.kept += segment.kept;
        plan.recompute += segment.recompute;
        lower = upper;
    }
}

std::optional<ChainPlan> LowerSetPlanner::solve(Bytes budget, Objective objective, Watch& watch) {
    std::optional<ChainPlan> best;
    proven_infeasible_ = false;
    try {
        for (int tier = 0; tier <= static_cast<int>(highest()); ++tier) {
            auto found = search(budget, objective, static_cast<Family>(tier), best ? &*best : nullptr, watch);
            if (!found) continue;
            measure(*found);
            found->proven = tier == static_cast<int>(highest()) && !sets_.truncated();
            best = std::move(found);
        }
        proven_infeasible_ = !best && !sets_.truncated();
    } catch (const Watch::TimeUp&) {
    }
    return best;
}

// ---- the least budget ---------------------------------------------------------------------------------------------

ChainPlan LowerSetPlanner::minimum_of(Family upto, ChainPlan best, Watch& watch) {
    Bytes low = costs_.inputs();  // nothing fits below
    while (low < best.peak) {
        const Bytes middle = low + (best.peak - low) / 2;
        std::vector<int> parents;
        const auto least = least_kept(middle, upto, watch, &parents);
        if (least.back() >= kUnreached) {
            low = middle + 1;
            continue;
        }
        ChainPlan found;
        for (int set = sets_.size() - 1; set > 0; set = parents[set]) found.chain.push_back(set);
        std::reverse(found.chain.begin(), found.chain.end());
        measure(found);
        best = std::move(found);
    }
    return best;
}

ChainPlan LowerSetPlanner::minimum(Watch& watch) {
    if (minimum_ && minimum_->proven) return *minimum_;
    ChainPlan best;
    if (sets_.size() > 1) best.chain.push_back(sets_.size() - 1);
    measure(best);
    try {
        for (int tier = 0; tier <= static_cast<int>(highest()); ++tier)
            best = minimum_of(static_cast<Family>(tier), best, watch);
        best.proven = !sets_.truncated();
    } catch (const Watch::TimeUp&) {
    }
    minimum_ = best;
    return best;
}

}  // namespace layermem
