// The search over walks, and the removal of recomputations from their results.
#include "planning/nested/nested_planner.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>

#include "planning/nested/editable_order.h"
#include "planning/nested/polish.h"

namespace layermem::planning::nested {
namespace {

// Exponents 0 to 2, the most successful first: in a large net, work ends before the last ones.
constexpr Exponents kExponents[] = {{2, 2}, {2, 1}, {1, 1}, {2, 3}, {1, 2}, {3, 2}, {3, 3}, {2, 0}, {1, 0},
                                    {0, 1}, {0, 2}, {3, 1}, {4, 2}, {4, 3}, {4, 4}, {1, 3}, {2, 4}, {3, 4},
                                    {4, 1}, {3, 0}, {0, 0}, {0, 3}, {1, 4}, {4, 0}, {0, 4}};
constexpr int64_t kPositionSteps = 25;  // work of measuring one position, in steps of a walk

int64_t times(int64_t number, double factor) { return static_cast<int64_t>(static_cast<double>(number) * factor); }

}  // namespace

NestedPlanner::NestedPlanner(LayoutGraph graph, std::vector<OpId> order, const std::vector<BufferId>& evictable,
                             const std::vector<BufferId>& dropped, Position drop_at, int overlays,
                             SearchSettings settings)
    : settings_(std::move(settings)),
      graph_(std::move(graph)),
      order_(order),
      overlays_(overlays),
      evictable_(evictable),
      dropped_(dropped),
      drop_at_(drop_at),
      is_dropped_(graph_.buffers().size(), 0),
      walk_(graph_, std::move(order), evictable, dropped, drop_at, overlays) {
    for (BufferId b : dropped) is_dropped_.at(b) = 1;
}

NestedPlan NestedPlanner::measure(std::vector<OpId> order) {
    measured_ += kPositionSteps * static_cast<int64_t>(order.size());
    if (order == last_measured_.order) return last_measured_;  // as of two walks within nearly the same bytes
    const liveness::Plan plan{std::move(order), {}, overlays_, 1.0};
    const liveness::Layout layout = graph_.lay_out(plan);
    NestedPlan result{plan.order, 0, graph_.peak_live_bytes(plan, layout)};
    for (size_t p = 0; p < plan.order.size(); ++p)
        if (layout.ops[p] != plan.order[p]) result.recompute_seconds += graph_.ops()[layout.ops[p]].seconds;
    last_measured_ = result;
    return result;
}

const std::vector<NestedPlan>& NestedPlanner::walked(Bytes budget_bytes, double steps_share,
                                                     const Interrupt& interrupt) {
    if (last_walked_.budget_bytes == budget_bytes && last_walked_.steps_share == steps_share) return last_walked_.plans;
    Walked walked{budget_bytes, steps_share, {}};
    const int64_t walks_end = work() + times(settings_.walk_steps, steps_share);
    for (const Exponents& exponents : kExponents) {
        auto low = static_cast<double>(budget_bytes) * settings_.walk_lowest,
             high = static_cast<double>(budget_bytes) * settings_.walk_highest;
        for (int i = 0; i < settings_.walk_halvings && work() < walks_end; ++i) {
            interrupt();
            const double middle = (low + high) / 2;
            auto order = walk_.run(static_cast<Bytes>(middle), exponents);
            // Without a result, or with one that fits, a walk within more bytes may find a better one.
            bool fits = false;
            if (order) {
                NestedPlan measured = measure(std::move(*order));
                fits = measured.live_bytes <= budget_bytes;
                if (fits) walked.plans.push_back(std::move(measured));
            }
            (!order || fits ? low : high) = middle;
        }
    }
    Seconds ops_seconds = 0, least_seconds = std::numeric_limits<double>::infinity();
    for (OpId op : order_) ops_seconds += graph_.ops()[op].seconds;
    for (const NestedPlan& plan : walked.plans) least_seconds = std::min(least_seconds, plan.recompute_seconds);
    if (least_seconds > settings_.blocks_from * ops_seconds)
        visit_chain_orders(walk_.items(), {budget_bytes}, interrupt, [&](std::vector<OpId> order) {
            NestedPlan measured = measure(std::move(order));
            const Bytes live_bytes = measured.live_bytes;
            if (live_bytes <= budget_bytes) walked.plans.push_back(std::move(measured));
            return live_bytes;
        });
    last_walked_ = std::move(walked);
    return last_walked_.plans;
}

std::optional<NestedPlan> NestedPlanner::plan(Bytes budget_bytes, const std::vector<std::vector<OpId>>& starts,
                                              double steps_share, int64_t edits, bool is_free,
                                              const Interrupt& interrupt) {
    std::vector<NestedPlan> fitting;
    for (const auto& start : starts) {
        NestedPlan measured = measure(start);
        if (measured.live_bytes <= budget_bytes) fitting.push_back(std::move(measured));
    }
    const std::vector<NestedPlan>& plans = walked(budget_bytes, steps_share, interrupt);
    fitting.insert(fitting.end(), plans.begin(), plans.end());
    std::stable_sort(fitting.begin(), fitting.end(), [](const NestedPlan& a, const NestedPlan& b) {
        return a.recompute_seconds < b.recompute_seconds;
    });
    const int64_t improve_end = work() + times(settings_.improve_steps, steps_share);
    std::optional<NestedPlan> best;
    for (size_t i = 0; i < std::min(fitting.size(), settings_.improved_walks); ++i) {
        auto is_same = [&](const NestedPlan& other) { return other.order == fitting[i].order; };
        const auto end = fitting.begin() + static_cast<std::ptrdiff_t>(i);
        if (std::any_of(fitting.begin(), end, is_same)) continue;  // walks within other bytes often agree
        NestedPlan improved = remove_needless(fitting[i], budget_bytes, improve_end, interrupt);
        if (!best || improved.recompute_seconds < best->recompute_seconds) best = std::move(improved);
    }
    if (!best || best->recompute_seconds == 0 || edits == 0) return best;
    return measure(polish(graph_, best->order, evictable_, dropped_, overlays_, budget_bytes, edits, is_free, settings_,
                          interrupt));
}

// The dynamic program over blocks estimates bytes, so for each level its units are bisected by the exact `live_bytes`
// of one order after the other.
void NestedPlanner::visit_chain_orders(const OrderItems& items, const std::vector<Bytes>& levels,
                                       const Interrupt& interrupt,
                                       const std::function<Bytes(std::vector<OpId>)>& live_bytes) const {
    const BlockChain chain(items, drop_at_);
    if (levels.empty() || chain.size() < settings_.least_blocks || !dropped_.empty()) return;
    const Bytes most_bytes = times(levels.back(), settings_.chain_highest);
    const ChainPlans plans = chain.plans(most_bytes);
    interrupt();
    const ChainProgram program(plans.chain, most_bytes, settings_.chain_units);
    for (Bytes level : levels) {
        int32_t low = program.units_of(times(level, settings_.chain_lowest));
        int32_t high = program.units_of(times(level, settings_.chain_highest)) + 1;
        while (low + 1 < high) {
            interrupt();
            const int32_t middle = (low + high) / 2;
            const std::vector<ChainStep> steps = program.steps(middle);
            (steps.empty() || live_bytes(chain.order(plans, steps)) <= level ? low : high) = middle;
        }
    }
}

Bytes NestedPlanner::least_mixed_bytes(const Offloads& offloads) const {
    std::vector<char> may_leave(graph_.buffers().size(), 0);
    for (const auto* list : {&evictable_, &offloads.activations, &offloads.state})
        for (BufferId b : *list) may_leave.at(b) = 1;
    const auto n = static_cast<Position>(order_.size());
    const liveness::Layout layout = graph_.lay_out({order_, {}, overlays_, 1.0});
    std::vector<Bytes> stays(n + 1, 0);
    for (const liveness::Residency& r : layout.residencies) {
        if (may_leave[r.buffer]) continue;
        stays[r.permanent ? 0 : r.begin] += graph_.buffers()[r.buffer].bytes;
        stays[r.permanent ? n : r.end] -= graph_.buffers()[r.buffer].bytes;
    }
    std::partial_sum(stays.begin(), stays.end(), stays.begin());
    Bytes most = 0;
    for (Position p = 0; p < n; ++p) {
        const liveness::Op& op = graph_.ops()[order_[p]];
        std::vector<BufferId> operands, overlaid;
        auto add_once = [](std::vector<BufferId>& list, BufferId b) {
            if (std::find(list.begin(), list.end(), b) == list.end()) list.push_back(b);
        };
        for (const auto* list : {&op.reads, &op.updates, &op.writes})
            for (BufferId b : *list)
                if (may_leave[b]) add_once(operands, b);
        for (const liveness::OverlayRule& rule : op.overlays)
            if (rule.kind & overlays_) add_once(overlaid, rule.out);
        Bytes bytes = stays[p] + op.workspace_bytes;
        for (BufferId b : operands) bytes += graph_.buffers()[b].bytes;
        for (BufferId b : overlaid) bytes -= graph_.buffers()[b].bytes;
        most = std::max(most, bytes);
    }
    return most;
}

// Walks within slightly more bytes than the budget recompute less; offloads then make them fit.
std::optional<MixedPlan> NestedPlanner::mixed_plan(Bytes budget_bytes, const std::vector<std::vector<OpId>>& starts,
                                                   const Offloads& offloads, Seconds limit_seconds,
                                                   const Interrupt& interrupt) const {
    // Plans of `starts` may run the ops in another order, in which other buffers are live together.
    if (starts.empty() && least_mixed_bytes(offloads) > budget_bytes) return std::nullopt;
    LocalSearch search(graph_, evictable_, is_dropped_, overlays_, offloads, settings_);
    LookaheadWalk walk(graph_, order_, evictable_, dropped_, drop_at_, overlays_,
                       search.decisions(search.draft(order_)));
    std::vector<Draft> drafts, fitting;
    for (const auto& start : starts) drafts.push_back(search.draft(start));
    auto is_quicker = [](const Draft& a, const Draft& b) { return a.seconds < b.seconds; };
    auto is_same = [](const Draft& a, const Draft& b) { return a.order == b.order; };
    auto walk_within = [&](double level_bytes, int64_t walks_end) {
        for (size_t e = 0; e < settings_.mixed_exponents; ++e) {
            double low = settings_.walk_lowest * level_bytes, high = settings_.walk_highest * level_bytes;
            for (int i = 0; i < settings_.mixed_halvings && walk.steps() + search.work() < walks_end; ++i) {
                interrupt();
                const double middle = (low + high) / 2;
                auto order = walk.run(static_cast<Bytes>(middle), kExponents[e]);
                if (order) drafts.push_back(search.draft(std::move(*order)));
                const bool is_over = order && static_cast<double>(drafts.back().live_bytes) > level_bytes;
                (is_over ? high : low) = middle;
            }
        }
    };
    auto fit_quickest = [&](double level_bytes, int64_t fits_end) {
        size_t taken = 0;
        for (Draft& draft : drafts) {
            if (draft.order.empty() || draft.seconds > limit_seconds || taken == settings_.fitted_per_level ||
                static_cast<double>(draft.live_bytes) > level_bytes)
                continue;
            ++taken;
            auto fit = search.fit(std::move(draft), budget_bytes, limit_seconds, fits_end, interrupt);
            draft = Draft{};
            if (!fit) continue;
            limit_seconds = std::min(limit_seconds, fit->seconds * settings_.hopeless);
            fitting.push_back(std::move(*fit));
        }
    };
    auto chain_within = [&](const std::vector<double>& levels) {
        std::vector<Bytes> level_bytes;
        level_bytes.reserve(levels.size());
        for (double level : levels) level_bytes.push_back(times(budget_bytes, level));
        visit_chain_orders(walk.items(), level_bytes, interrupt, [&](std::vector<OpId> order) {
            drafts.push_back(search.draft(std::move(order)));
            return drafts.back().live_bytes;
        });
    };
    for (bool from_blocks : {false, true})
        for (const auto& levels : {settings_.levels, settings_.high_levels}) {
            if (!fitting.empty()) break;
            const int64_t walks_end = walk.steps() + search.work() + settings_.mixed_walk_steps;
            if (from_blocks)
                chain_within(levels);
            else
                for (double level : levels) walk_within(level * static_cast<double>(budget_bytes), walks_end);
            std::stable_sort(drafts.begin(), drafts.end(), is_quicker);
            drafts.erase(std::unique(drafts.begin(), drafts.end(), is_same), drafts.end());
            const int64_t fits_end = search.work() + settings_.mixed_fit_steps;
            for (double level : levels) fit_quickest(level * static_cast<double>(budget_bytes), fits_end);
        }
    std::stable_sort(fitting.begin(), fitting.end(), is_quicker);
    std::optional<Draft> best;
    const int64_t improve_end = search.work() + settings_.mixed_improve_steps;
    for (size_t i = 0; i < std::min(fitting.size(), settings_.improved_mixed); ++i) {
        Draft improved = search.improve(std::move(fitting[i]), budget_bytes, improve_end, interrupt);
        if (!best || improved.seconds < best->seconds) best = std::move(improved);
    }
    if (!best) return std::nullopt;
    return MixedPlan{best->order, search.decisions(*best), best->seconds, best->live_bytes};
}

NestedPlan NestedPlanner::minimum(const Interrupt& interrupt) {
    std::optional<NestedPlan> least;
    auto take = [&](NestedPlan measured) {
        if (!least || measured.live_bytes < least->live_bytes) least = std::move(measured);
    };
    const int64_t end = work() + settings_.walk_steps;
    auto all = walk_.run(measure(order_).live_bytes * 2, kExponents[0]);  // evicts what must be, and nothing else
    if (!all) return measure(order_);
    take(measure(std::move(*all)));
    auto walk = [&](double walk_bytes, const Exponents& exponents, CostOf cost_of) {
        interrupt();
        auto order = walk_.run(static_cast<Bytes>(walk_bytes), exponents, cost_of);
        if (order) take(measure(std::move(*order)));
        return order.has_value();
    };
    auto bisect = [&](double high, const Exponents& exponents) {
        double low = 0;
        for (int i = 0; i < settings_.walk_halvings + 2 && work() < end; ++i) {
            const double middle = (low + high) / 2;
            (walk(middle, exponents, CostOf::kSeconds) ? high : low) = middle;
        }
        return high;
    };
    double lowest = std::numeric_limits<double>::infinity();  // bytes of a walk that succeeded
    for (size_t i = 0; i < std::size(kExponents); ++i) {
        double high = 1.25 * static_cast<double>(least->live_bytes);
        if (i >= settings_.bisected_exponents) {
            high = lowest * settings_.much_less;
            if (work() >= end || !walk(high, kExponents[i], CostOf::kSeconds)) continue;
        }
        lowest = std::min(lowest, bisect(high, kExponents[i]));
    }
    // A walk that fails within some bytes may succeed within fewer.
    const int64_t lower_end = std::min(end, work() + settings_.lower_walk_steps);
    for (CostOf cost_of : {CostOf::kSeconds, CostOf::kOps})
        for (const Exponents& exponents : kExponents)
            for (int i = 0; i < settings_.lower_walks && work() < lower_end; ++i)
                walk((1 - i / (4.0 * settings_.lower_walks)) * static_cast<double>(least->live_bytes), exponents,
                     cost_of);
    return *least;
}

// Tries each recomputation once, the most expensive first, and removes it if the rest fits.  Work counts as if orders
// were measured whole.
NestedPlan NestedPlanner::remove_needless(NestedPlan plan, Bytes budget_bytes, int64_t work_end,
                                          const Interrupt& interrupt) {
    EditableOrder order(graph_, plan.order, overlays_);
    std::vector<std::pair<Seconds, Slot>> dearest;
    for (const Slot slot : order.recomputations()) dearest.push_back({-order.form(slot).seconds, slot});
    std::sort(dearest.begin(), dearest.end());
    const auto work_of = [](size_t ops) { return kPositionSteps * static_cast<int64_t>(ops); };
    const auto is_fixed = [&](Slot slot) {
        const std::vector<BufferId>& writes = order.form(slot).writes;
        return std::any_of(writes.begin(), writes.end(), [&](BufferId b) { return is_dropped_[b]; });
    };
    bool is_changed = false;
    measured_ += work_of(order.occupied().size());
    for (const auto& [seconds, slot] : dearest) {
        if (work() >= work_end) break;
        if (is_fixed(slot) || !order.may_fit_without(slot, budget_bytes)) continue;
        order.begin_edit();
        order.remove(slot);
        measured_ += work_of(order.occupied().size());
        if (order.peak_bytes() > budget_bytes) {
            order.undo_edit();
            continue;
        }
        is_changed = true;
        measured_ += work_of(order.occupied().size());
        interrupt();
    }
    if (!is_changed) return plan;
    const int64_t before = measured_;
    plan = measure(order.order());
    measured_ = before;
    return plan;
}

}  // namespace layermem::planning::nested
