// One walk: O(values) per eviction, O(1) per op that fits.
#include "planning/nested/lookahead.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace layermem::planning::nested {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kLeastSeconds = 1e-12;  // so that quotients stay finite

double power_of_halves(double x, int halves) {
    double result = halves % 2 ? std::sqrt(x) : 1.0;
    for (int i = 0; i < halves / 2; ++i) result *= x;
    return result;
}

}  // namespace

LookaheadWalk::LookaheadWalk(const LayoutGraph& graph, std::vector<OpId> order, const std::vector<BufferId>& evictable,
                             const std::vector<BufferId>& dropped, Position drop_at, int overlays,
                             const std::vector<liveness::Gap>& decisions)
    : of_(graph, std::move(order), evictable, overlays, decisions), drop_at_(drop_at) {
    for (BufferId b : dropped)
        if (of_.items.at(b) >= 0) dropped_.push_back(of_.items[b]);
    const size_t items = of_.buffers.size();
    uses_.resize(items);
    recomputed_from_.resize(items);
    for (Position p = 0; p < static_cast<Position>(of_.order.size()); ++p) {
        for (Evictable item : of_.forms[p].reads) uses_[item].push_back(p);
        for (Evictable item : of_.again[p].reads) recomputed_from_[item].push_back(p);
    }
    outputs_.resize(items);
    for (Evictable item = 0; item < static_cast<Evictable>(items); ++item)
        for (Evictable input : of_.again[of_.producers[item]].reads) outputs_[input].push_back(item);
    last_need_.assign(items, -1);
    for (auto item = static_cast<Evictable>(items) - 1; item >= 0; --item) {
        if (!uses_[item].empty()) last_need_[item] = uses_[item].back();
        for (Evictable output : outputs_[item]) last_need_[item] = std::max(last_need_[item], last_need_[output]);
    }
}

// ---- a walk -------------------------------------------------------------------------------------------------------

std::optional<std::vector<OpId>> LookaheadWalk::run(Bytes budget_bytes, Exponents exponents, CostOf cost_of) {
    const size_t items = of_.buffers.size();
    budget_bytes_ = budget_bytes;
    exponents_ = exponents;
    cost_of_ = cost_of;
    used_bytes_ = 0;
    resident_.assign(items, 0);
    residents_.clear(items);
    stale_needs_.fill(items);
    stale_costs_.fill(items);
    passed_ = 0;
    produced_ = 0;
    locked_.assign(items, 0);
    next_use_.assign(items, 0);
    need_.assign(items, kNever);
    cost_.assign(items, 0.0);
    in_chain_.assign(of_.order.size(), 0);
    result_.clear();
    for (Position p = 0; p < static_cast<Position>(of_.order.size()); ++p) {
        while (produced_ < static_cast<Evictable>(items) && of_.producers[produced_] <= p) ++produced_;
        if (p == drop_at_)
            for (Evictable item : dropped_)
                if (resident_[item]) evict(item);
        const std::vector<Evictable>& wanted = of_.forms[p].reads;
        const std::vector<Position> chain = missing_producers(wanted);
        for (Evictable item : wanted) ++locked_[item];
        for (Position q : chain)
            for (Evictable item : of_.again[q].reads) ++locked_[item];
        for (Position q : chain) {
            for (Evictable item : of_.again[q].reads) --locked_[item];
            if (!of_.repeatable[q] || !run_form(of_.again[q], p, true, of_.order[q])) return std::nullopt;
        }
        for (Evictable item : wanted) --locked_[item];
        if (!run_form(of_.forms[p], p, false, of_.order[p])) return std::nullopt;
    }
    return result_;
}

// Returns the positions of the producers to run again so that `wanted` is resident, ascending.
std::vector<Position> LookaheadWalk::missing_producers(const std::vector<Evictable>& wanted) {
    std::vector<Position> chain;
    std::vector<Evictable> stack;
    auto add_missing = [&](const std::vector<Evictable>& list) {
        for (Evictable item : list)
            if (!resident_[item]) stack.push_back(item);
    };
    add_missing(wanted);
    while (!stack.empty()) {
        const Position producer = of_.producers[stack.back()];
        stack.pop_back();
        if (in_chain_[producer]) continue;
        in_chain_[producer] = 1;
        chain.push_back(producer);
        add_missing(of_.again[producer].reads);
    }
    for (Position p : chain) in_chain_[p] = 0;
    std::sort(chain.begin(), chain.end());
    return chain;
}

// Allocates the outputs of the op, after enough was evicted for them.
bool LookaheadWalk::run_form(const Form& form, Position at, bool is_recompute, OpId op) {
    for (Evictable item : form.writes)
        if (!resident_[item]) {
            set_resident(item, true);  // so that find_needs() does not count its recomputation
            used_bytes_ += of_.bytes[item];
        }
    const Bytes limit = budget_bytes_ - (is_recompute ? of_.before[at] : of_.during[at]) - form.workspace_bytes;
    for (Evictable item : form.writes) ++locked_[item];
    const bool fits = used_bytes_ <= limit || evict_until_fits(form, at, is_recompute ? at : at + 1, limit);
    for (Evictable item : form.writes) --locked_[item];
    result_.push_back(op);
    return fits;
}

// Evicts until `used_bytes_` is within `limit`.  An input that the op reads for the last time may be evicted too if an
// output may overlay it, because it takes no bytes in addition to that output.
bool LookaheadWalk::evict_until_fits(const Form& form, Position at, Position now, Bytes limit) {
    find_needs(now);
    auto reads = [&](Evictable item) {
        return std::find(form.reads.begin(), form.reads.end(), item) != form.reads.end();
    };
    residents_.for_each([&](Evictable item) {
        if (!locked_[item] && need_[item] == kNever && !reads(item)) evict(item);
    });
    // The overlays that are possible here; each out and each over occurs once.
    std::vector<const Form::Overlay*> overlays;
    auto begins_here = [&](const Form::Overlay& o) {
        if (o.out >= 0) return std::find(form.writes.begin(), form.writes.end(), o.out) != form.writes.end();
        return now > at &&
               std::find(of_.begins[at].begin(), of_.begins[at].end(), o.out_buffer) != of_.begins[at].end();
    };
    std::vector<BufferId> taken;
    auto grant = [&](const Form::Overlay& o) {
        for (BufferId b : taken)
            if (b == o.out_buffer || b == of_.buffers[o.over]) return false;
        taken.insert(taken.end(), {o.out_buffer, of_.buffers[o.over]});
        return true;
    };
    std::vector<Evictable> consumed;
    Bytes saved = 0;
    for (const Form::Overlay& o : form.overlays) {
        if (!resident_[o.over] || locked_[o.over] || !begins_here(o)) continue;
        if (need_[o.over] == kNever) {
            if (grant(o)) {
                saved += o.bytes;
                consumed.push_back(o.over);
            }
        } else {
            overlays.push_back(&o);
        }
    }
    while (used_bytes_ - saved > limit) {
        Evictable best = -1;
        const Form::Overlay* best_overlay = nullptr;
        double most = -1;
        residents_.for_each([&](Evictable item) {
            if (locked_[item] || of_.bytes[item] == 0 || reads(item)) return;
            const double value = score(item, now);
            if (value > most) {
                most = value;
                best = item;
            }
        });
        for (const Form::Overlay* o : overlays) {
            if (std::any_of(taken.begin(), taken.end(),
                            [&](BufferId b) { return b == o->out_buffer || b == of_.buffers[o->over]; }))
                continue;
            const double value = score(o->over, now);
            if (value > most) {
                most = value;
                best = o->over;
                best_overlay = o;
            }
        }
        if (best < 0) return false;
        if (best_overlay) {
            grant(*best_overlay);
            saved += best_overlay->bytes;
            consumed.push_back(best);
            set_resident(best, false);  // as the needs of others see it; its bytes go with the op
            find_needs_without(best, now);
            set_resident(best, true);
        } else {
            evict(best);
            find_needs_without(best, now);
        }
    }
    for (Evictable item : consumed) evict(item);
    return true;
}

void LookaheadWalk::evict(Evictable item) {
    set_resident(item, false);
    used_bytes_ -= of_.bytes[item];
}

void LookaheadWalk::set_resident(Evictable item, bool resident) {
    resident_[item] = resident;
    if (resident)
        residents_.add(item);
    else
        residents_.remove(item);
    forget_needs_of_inputs(item);
    forget_costs_of_outputs(item);
}

double LookaheadWalk::score(Evictable item, Position now) const {
    const double distance = need_[item] - now + 1;
    return static_cast<double>(of_.bytes[item]) * power_of_halves(distance, exponents_.distance) /
           power_of_halves(std::max(cost_[item], kLeastSeconds), exponents_.cost);
}

// cost   seconds to recompute a value from resident ones; an input that two of its inputs share counts twice
// need   position of the first op from `now` on that reads a value, or the recomputation of an evicted one that will
//
// Both are recomputed only for items whose inputs have changed; costs only for values that existed and are still
// needed. The step count assumes that all were recomputed.
void LookaheadWalk::find_needs(Position now) {
    const auto items = static_cast<Evictable>(of_.buffers.size());
    steps_ += items;
    for (; passed_ < now; ++passed_)
        for (Evictable item : of_.forms[passed_].reads) stale_needs_.add(item);
    find_costs(0, now);
    find_needs_below(items, now);
}

// Updates both after one eviction: costs change above the item, needs below it.
void LookaheadWalk::find_needs_without(Evictable evicted, Position now) {
    steps_ += static_cast<int64_t>(of_.buffers.size()) / 2;
    find_costs(evicted + 1, now);
    find_needs_below(evicted, now);
}

void LookaheadWalk::find_costs(Evictable first, Position now) {
    stale_costs_.take_rising(first, produced_, [&](Evictable item) {
        if (last_need_[item] < now) return;  // recomputed no more
        const double cost = cost_of(item);
        if (cost == cost_[item]) return;
        cost_[item] = cost;
        if (!resident_[item]) forget_costs_of_outputs(item);
    });
}

void LookaheadWalk::find_needs_below(Evictable end, Position now) {
    stale_needs_.take_falling(end, [&](Evictable item) {
        const double need = need_of(item, now);
        if (need == need_[item]) return;
        need_[item] = need;
        if (!resident_[item]) forget_needs_of_inputs(item);
    });
}

double LookaheadWalk::cost_of(Evictable item) const {
    const Position p = of_.producers[item];
    double cost = cost_of_ == CostOf::kSeconds ? of_.again_seconds[p] : 1.0;
    for (Evictable input : of_.again[p].reads)
        if (!resident_[input]) cost += cost_[input];
    return cost;
}

double LookaheadWalk::need_of(Evictable item, Position now) {
    const auto& uses = uses_[item];
    size_t& next = next_use_[item];
    while (next < uses.size() && uses[next] < now) ++next;
    double need = next < uses.size() ? uses[next] : kNever;
    for (Position p : recomputed_from_[item])
        for (Evictable output : of_.again[p].writes)
            if (!resident_[output] && output > item) need = std::min(need, need_[output] + 0.5);
    return need;
}

void LookaheadWalk::forget_needs_of_inputs(Evictable item) {
    for (Evictable input : of_.again[of_.producers[item]].reads) stale_needs_.add(input);
}

void LookaheadWalk::forget_costs_of_outputs(Evictable item) {
    for (Evictable output : outputs_[item]) stale_costs_.add(output);
}

}  // namespace layermem::planning::nested
