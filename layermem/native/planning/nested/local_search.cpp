// Every change costs one layout of the plan: some tenths of a microsecond per op.
#include "planning/nested/local_search.h"

#include <algorithm>

namespace layermem::planning::nested {
namespace {

constexpr int64_t kPositionSteps = 25;  // work of measuring one position, in steps of a walk
constexpr double kQuicker = 1 - 1e-9;   // a change has to save more than rounding

}  // namespace

LocalSearch::LocalSearch(const LayoutGraph& graph, const std::vector<BufferId>& evictable, std::vector<char> dropped,
                         int overlays, Offloads offloads, const SearchSettings& settings)
    : graph_(graph),
      settings_(settings),
      dropped_(std::move(dropped)),
      overlays_(overlays),
      offloads_(std::move(offloads)),
      may_offload_(graph.buffers().size(), 0),
      is_state_(graph.buffers().size(), 0),
      producers_(graph.buffers().size(), -1) {
    for (BufferId b : offloads_.activations) may_offload_.at(b) = 1;
    for (BufferId b : offloads_.state) is_state_.at(b) = 1;
    std::vector<char> is_evictable(graph.buffers().size(), 0);
    for (BufferId b : evictable) is_evictable.at(b) = 1;
    for (OpId id = 0; id < static_cast<OpId>(graph.ops().size()); ++id)
        if (graph.ops()[id].recompute >= 0)
            for (BufferId b : graph.ops()[id].writes)
                if (is_evictable[b]) producers_[b] = id;
}

Draft LocalSearch::draft(std::vector<OpId> order) {
    Draft draft;
    draft.order = std::move(order);
    for (size_t p = 0; p < draft.order.size(); ++p) draft.numbers.push_back(static_cast<int32_t>(p));
    erase_needless(draft);
    measure(draft);
    return draft;
}

// Returns the offloads of activations in the draft, and of state in all gaps except the short ones.
std::vector<Gap> LocalSearch::decisions(const Draft& draft) const {
    struct Last {
        int32_t use = -1;
        Position position = 0;
        bool offloaded = false;
    };
    std::vector<Last> last(graph_.buffers().size());
    const std::vector<OpId> ops = forms(draft);
    std::vector<Gap> gaps;
    auto offloaded = draft.offloaded;
    std::sort(offloaded.begin(), offloaded.end());
    for (Position p = 0; p < static_cast<Position>(draft.order.size()); ++p) {
        const liveness::Op& op = graph_.ops()[ops[p]];
        auto use = [&](BufferId b, bool reads) {
            Last& before = last[b];
            const bool is_long = is_state_[b] && p - before.position > offloads_.short_gap;
            if (before.use >= 0 && reads && (before.offloaded || is_long))
                gaps.push_back({b, before.use, liveness::Decision::offload});
            before.use += 1;
            before.position = p;
            before.offloaded = may_offload_[b] && std::binary_search(offloaded.begin(), offloaded.end(),
                                                                     std::make_pair(b, draft.numbers[p]));
        };
        for (BufferId b : op.reads) use(b, true);
        for (BufferId b : op.updates) use(b, true);
        for (BufferId b : op.writes) use(b, false);
    }
    for (BufferId b : offloads_.state)
        if (last[b].use >= 0) gaps.push_back({b, -1, liveness::Decision::offload});
    return gaps;
}

liveness::Plan LocalSearch::plan_of(const Draft& draft) const {
    return {draft.order, decisions(draft), overlays_, 1.0, offloads_.copy_limit_bytes};
}

LocalSearch::Measured LocalSearch::measure(Draft& draft) {
    work_ += kPositionSteps * static_cast<int64_t>(draft.order.size());
    const liveness::Plan plan = plan_of(draft);
    Measured measured{graph_.lay_out(plan), {}};
    measured.live = graph_.live_profile(plan, measured.layout);
    draft.live_bytes = measured.live.empty() ? 0 : *std::max_element(measured.live.begin(), measured.live.end());
    draft.seconds = graph_.estimate_seconds(measured.layout);
    return measured;
}

// Returns the op at each position: the op itself the first time, then its recomputation.
std::vector<OpId> LocalSearch::forms(const Draft& draft) const {
    std::vector<char> has_run(graph_.ops().size(), 0);
    std::vector<OpId> forms;
    for (OpId id : draft.order) {
        forms.push_back(has_run[id] ? graph_.ops()[id].recompute : id);
        has_run[id] = 1;
    }
    return forms;
}

bool LocalSearch::touches(OpId id, BufferId buffer) const {
    const liveness::Op& op = graph_.ops()[id];
    for (const auto* list : {&op.reads, &op.updates, &op.writes})
        if (std::find(list->begin(), list->end(), buffer) != list->end()) return true;
    return false;
}

// ---- changes ------------------------------------------------------------------------------------------------------

// Removes the recomputation at p.  An offload after one of its uses then follows the use before.
void LocalSearch::erase(Draft& draft, Position p) const {
    const int32_t number = draft.numbers[p];
    const std::vector<OpId> ops = forms(draft);
    for (auto& [buffer, after] : draft.offloaded) {
        if (after != number) continue;
        Position before = p - 1;
        while (before > 0 && !touches(ops[before], buffer)) --before;
        after = draft.numbers[before];
    }
    std::sort(draft.offloaded.begin(), draft.offloaded.end());
    draft.offloaded.erase(std::unique(draft.offloaded.begin(), draft.offloaded.end()), draft.offloaded.end());
    draft.order.erase(draft.order.begin() + p);
    draft.numbers.erase(draft.numbers.begin() + p);
}

// Removes recomputations whose outputs nothing reads, from the last one on.
void LocalSearch::erase_needless(Draft& draft) const {
    const std::vector<OpId> ops = forms(draft);
    std::vector<char> needed(graph_.buffers().size(), 0);
    for (Position p = static_cast<Position>(draft.order.size()) - 1; p >= 0; --p) {
        const liveness::Op& op = graph_.ops()[ops[p]];
        const bool is_needed = std::any_of(op.writes.begin(), op.writes.end(), [&](BufferId b) { return needed[b]; });
        if (ops[p] != draft.order[p] && !is_needed) {
            erase(draft, p);
            continue;
        }
        for (BufferId b : op.writes) needed[b] = 0;
        for (const auto* list : {&op.reads, &op.updates})
            for (BufferId b : *list) needed[b] = 1;
    }
}

// Offloads the results of the recomputation at p, from the use before it on, if they are read next.
bool LocalSearch::offload_before(Draft& draft, Position p) const {
    const std::vector<OpId> ops = forms(draft);
    for (BufferId b : graph_.ops()[ops[p]].writes) {
        if (!may_offload_[b]) return false;
        Position before = p - 1;
        while (before >= 0 && !touches(ops[before], b)) --before;
        if (before < 0) return false;
        draft.offloaded.emplace_back(b, draft.numbers[before]);
    }
    std::sort(draft.offloaded.begin(), draft.offloaded.end());
    draft.offloaded.erase(std::unique(draft.offloaded.begin(), draft.offloaded.end()), draft.offloaded.end());
    return within_host_bytes(draft);
}

bool LocalSearch::within_host_bytes(const Draft& draft) const {
    Bytes bytes = 0;
    BufferId counted = -1;  // `offloaded` is sorted by buffer
    for (const auto& [buffer, after] : draft.offloaded) {
        if (buffer != counted) bytes += graph_.buffers()[buffer].bytes;
        counted = buffer;
    }
    return bytes <= offloads_.host_bytes;
}

// ---- search -------------------------------------------------------------------------------------------------------

std::optional<Draft> LocalSearch::fit(Draft draft, Bytes budget_bytes, Seconds limit, int64_t work_end,
                                      const Interrupt& interrupt) {
    auto excess = [&](const Measured& measured) {
        double sum = 0;
        for (Bytes live : measured.live) sum += static_cast<double>(std::max<Bytes>(0, live - budget_bytes));
        return sum;
    };
    Measured measured = measure(draft);
    const Seconds least_seconds = 1e-4 * draft.seconds;  // minimum cost of an offload, so that gains compare
    for (double over = excess(measured); over > 0;) {
        interrupt();
        if (work_ >= work_end || draft.seconds > limit) return std::nullopt;
        const auto peak =
            static_cast<Position>(std::max_element(measured.live.begin(), measured.live.end()) - measured.live.begin());
        // Gaps around the peak over which an activation is kept, those that free most bytes for longest first.
        std::vector<std::pair<double, std::pair<BufferId, Position>>> gaps;
        for (const liveness::Residency& r : measured.layout.residencies) {
            if (!may_offload_[r.buffer] || r.begin >= peak || r.end - 1 <= peak) continue;
            Position before = peak, after = peak;
            if (touches(measured.layout.ops[peak], r.buffer)) continue;
            while (!touches(measured.layout.ops[before], r.buffer)) --before;
            while (!touches(measured.layout.ops[after], r.buffer)) ++after;
            if (after - before > offloads_.short_gap)
                gaps.push_back(
                    {-static_cast<double>(graph_.buffers()[r.buffer].bytes) * (after - before), {r.buffer, before}});
        }
        std::sort(gaps.begin(), gaps.end());
        std::optional<Draft> best;
        Measured best_measured;
        double best_gain = 0;
        for (size_t i = 0; i < std::min(gaps.size(), settings_.tried_per_peak); ++i) {
            const auto [buffer, before] = gaps[i].second;
            Draft tried = draft;
            tried.offloaded.emplace_back(buffer, draft.numbers[before]);
            std::sort(tried.offloaded.begin(), tried.offloaded.end());
            if (!within_host_bytes(tried)) continue;
            Measured result = measure(tried);
            const double gain =
                (over - excess(result)) / (std::max(0.0, tried.seconds - draft.seconds) + least_seconds);
            if (gain > best_gain) {
                best_gain = gain;
                best = std::move(tried);
                best_measured = std::move(result);
            }
        }
        if (!best) return std::nullopt;
        draft = std::move(*best);
        measured = std::move(best_measured);
        over = excess(measured);
    }
    return draft;
}

Draft LocalSearch::improve(Draft draft, Bytes budget_bytes, int64_t work_end, const Interrupt& interrupt) {
    for (int round = 0; round < settings_.improve_rounds; ++round) {
        const Seconds before = draft.seconds;
        std::vector<char> tried(
            draft.numbers.empty() ? 0 : *std::max_element(draft.numbers.begin(), draft.numbers.end()) + 1, 0);
        while (work_ < work_end && exchange_one(draft, budget_bytes, tried)) interrupt();
        while (work_ < work_end && keep_one(draft, budget_bytes)) interrupt();
        while (work_ < work_end && recompute_one(draft, budget_bytes, work_end)) interrupt();
        if (work_ >= work_end || draft.seconds >= before * kQuicker) break;
    }
    return draft;
}

// Keeps or offloads the results of one recomputation, the first of those not `tried` that gains.
bool LocalSearch::exchange_one(Draft& draft, Bytes budget_bytes, std::vector<char>& tried) {
    const Measured now = measure(draft);
    const std::vector<OpId>& ops = now.layout.ops;
    std::vector<Seconds> starts(ops.size() + 1, 0.0);
    for (size_t p = 0; p < ops.size(); ++p) starts[p + 1] = starts[p] + graph_.ops()[ops[p]].seconds;
    std::vector<Position> ends(graph_.buffers().size());
    // Quick tests that most changes fail: bytes between the uses around p, and seconds of the link between them.
    auto may_gain = [&](Position p, bool offloads) {
        const liveness::Op& op = graph_.ops()[ops[p]];
        Bytes freed = 0;  // at p and before, by what goes with it
        for (const liveness::Residency& r : now.layout.residencies)
            if (r.end <= p)
                ends[r.buffer] = r.end;
            else if (r.end == p + 1 && !r.permanent)
                freed += graph_.buffers()[r.buffer].bytes;
        for (BufferId b : op.writes) {
            const liveness::Buffer& buffer = graph_.buffers()[b];
            if (offloads) {
                const Seconds copies = buffer.offload_seconds + buffer.prefetch_seconds;
                if (copies > starts[p] - starts[ends[b]] + settings_.chain_ratio * op.seconds) return false;
            } else {
                for (Position q = ends[b]; q < p; ++q)
                    if (now.live[q] + buffer.bytes > budget_bytes + freed) return false;
            }
        }
        return true;
    };
    std::vector<std::pair<double, Position>> dearest;
    for (Position p = 0; p < static_cast<Position>(draft.order.size()); ++p) {
        if (ops[p] == draft.order[p] || tried[draft.numbers[p]]) continue;
        const liveness::Op& op = graph_.ops()[ops[p]];
        Bytes bytes = 1;
        for (BufferId b : op.writes) bytes += graph_.buffers()[b].bytes;
        if (std::none_of(op.writes.begin(), op.writes.end(), [&](BufferId b) { return dropped_[b]; }))
            dearest.push_back({-op.seconds / static_cast<double>(bytes), p});
    }
    std::sort(dearest.begin(), dearest.end());
    for (const auto& [_, p] : dearest) {
        tried[draft.numbers[p]] = 1;
        std::optional<Draft> best;
        for (bool offloads : {false, true}) {
            if (!may_gain(p, offloads)) continue;
            Draft changed = draft;
            if (offloads && !offload_before(changed, p)) continue;
            erase(changed, p);
            erase_needless(changed);
            measure(changed);
            if (changed.live_bytes <= budget_bytes &&
                changed.seconds < (best ? best->seconds : draft.seconds) * kQuicker)
                best = std::move(changed);
        }
        if (best) {
            draft = std::move(*best);
            return true;
        }
    }
    return false;
}

// Keeps one value instead of offloading it, if the plan becomes no slower.
bool LocalSearch::keep_one(Draft& draft, Bytes budget_bytes) {
    for (size_t i = 0; i < draft.offloaded.size(); ++i) {
        Draft changed = draft;
        changed.offloaded.erase(changed.offloaded.begin() + static_cast<std::ptrdiff_t>(i));
        measure(changed);
        if (changed.live_bytes <= budget_bytes && changed.seconds <= draft.seconds) {
            draft = std::move(changed);
            return true;
        }
    }
    return false;
}

// Recomputes one value for its next read instead of offloading it, if the plan becomes quicker.
bool LocalSearch::recompute_one(Draft& draft, Bytes budget_bytes, int64_t work_end) {
    const std::vector<OpId> ops = forms(draft);
    for (size_t i = 0; i < draft.offloaded.size() && work_ < work_end; ++i) {
        const auto [buffer, after] = draft.offloaded[i];
        const OpId producer = producers_[buffer];
        if (producer < 0) continue;
        const auto entry = std::find(draft.numbers.begin(), draft.numbers.end(), after);
        Position p = static_cast<Position>(entry - draft.numbers.begin()) + 1;
        while (p < static_cast<Position>(ops.size()) && !touches(ops[p], buffer)) ++p;
        if (p >= static_cast<Position>(ops.size()) || draft.order[p] == producer) continue;
        Draft changed = draft;
        changed.offloaded.erase(changed.offloaded.begin() + static_cast<std::ptrdiff_t>(i));
        changed.order.insert(changed.order.begin() + p, producer);
        const int32_t number = *std::max_element(draft.numbers.begin(), draft.numbers.end()) + 1;
        changed.numbers.insert(changed.numbers.begin() + p, number);
        measure(changed);
        if (changed.live_bytes <= budget_bytes && changed.seconds < draft.seconds * kQuicker) {
            draft = std::move(changed);
            return true;
        }
    }
    return false;
}

}  // namespace layermem::planning::nested
