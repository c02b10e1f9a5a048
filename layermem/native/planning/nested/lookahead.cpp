// One walk: O(values) per eviction, O(1) per op that fits.
#include "planning/nested/lookahead.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

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
    : graph_(graph), order_(std::move(order)), drop_at_(drop_at), overlays_(overlays) {
    const auto n = static_cast<Position>(order_.size());
    std::vector<char> is_evictable(graph.buffers().size(), 0);
    for (BufferId b : evictable) is_evictable.at(b) = 1;
    item_of_.assign(graph.buffers().size(), -1);
    for (Position p = 0; p < n; ++p)
        for (BufferId b : graph.ops().at(order_[p]).writes)
            if (is_evictable[b] && item_of_[b] < 0) {
                item_of_[b] = static_cast<Item>(buffer_of_.size());
                buffer_of_.push_back(b);
                bytes_.push_back(graph.buffers()[b].bytes);
                producer_.push_back(p);
            }
    for (BufferId b : dropped)
        if (item_of_.at(b) >= 0) dropped_.push_back(item_of_[b]);
    const size_t items = buffer_of_.size();
    uses_.resize(items);
    recomputed_from_.resize(items);
    for (Position p = 0; p < n; ++p) {
        const liveness::Op& op = graph.ops()[order_[p]];
        forms_.push_back(make_form(order_[p]));
        repeatable_.push_back(op.recompute >= 0);
        again_.push_back(op.recompute >= 0 ? make_form(op.recompute) : Form{});
        again_seconds_.push_back(op.recompute >= 0 ? graph.ops()[op.recompute].seconds : 0.0);
        for (Item item : forms_[p].reads) uses_[item].push_back(p);
        for (Item item : again_[p].reads) recomputed_from_[item].push_back(p);
    }
    outputs_.resize(items);
    for (Item item = 0; item < static_cast<Item>(items); ++item)
        for (Item input : again_[producer_[item]].reads) outputs_[input].push_back(item);
    last_need_.assign(items, -1);
    for (auto item = static_cast<Item>(items) - 1; item >= 0; --item) {
        if (!uses_[item].empty()) last_need_[item] = uses_[item].back();
        for (Item output : outputs_[item]) last_need_[item] = std::max(last_need_[item], last_need_[output]);
    }
    count_other_bytes(decisions);
}

LookaheadWalk::Form LookaheadWalk::make_form(OpId id) const {
    const liveness::Op& op = graph_.ops()[id];
    Form form;
    form.workspace_bytes = op.workspace_bytes;
    for (const auto* list : {&op.reads, &op.updates})
        for (BufferId b : *list)
            if (item_of_[b] >= 0) form.reads.push_back(item_of_[b]);
    for (BufferId b : op.writes)
        if (item_of_[b] >= 0) form.writes.push_back(item_of_[b]);
    for (const liveness::OverlayRule& rule : op.overlays)
        if ((rule.kind & overlays_) && item_of_[rule.over] >= 0)
            form.overlays.push_back(
                {item_of_[rule.out], rule.out, item_of_[rule.over], graph_.buffers()[rule.out].bytes});
    return form;
}

// Where what is not evictable lies: as when every op runs once.  A recomputation may read some of it later, which the
// exact bytes of the result count.
void LookaheadWalk::count_other_bytes(const std::vector<liveness::Gap>& decisions) {
    const auto n = static_cast<Position>(order_.size());
    const liveness::Plan plan{order_, decisions, overlays_, 1.0};
    const liveness::Layout layout = graph_.lay_out(plan);
    std::vector<Bytes> during(n + 1, 0), before(n + 1, 0);
    std::vector<std::vector<const liveness::Residency*>> begins(n), ends(n);
    begins_.resize(n);
    for (const liveness::Residency& r : layout.residencies) {
        if (item_of_[r.buffer] >= 0) continue;
        const Bytes bytes = graph_.buffers()[r.buffer].bytes;
        const bool prefetched = r.issue >= 0;
        const Position begin = r.permanent ? 0 : prefetched ? r.issue : r.begin;
        const Position end = r.permanent ? n : std::min(r.release, n);
        during[begin] += bytes;
        during[end] -= bytes;
        before[r.permanent || prefetched ? begin : std::min(begin + 1, end)] += bytes;
        before[end] -= bytes;
        begins[r.begin].push_back(&r);
        ends[r.end - 1].push_back(&r);
        if (!prefetched) begins_[r.begin].push_back(r.buffer);
    }
    std::partial_sum(during.begin(), during.end(), during.begin());
    std::partial_sum(before.begin(), before.end(), before.begin());
    during_.assign(during.begin(), during.end() - 1);
    before_.assign(before.begin(), before.end() - 1);
    for (Position p = 0; p < n; ++p) {
        std::vector<BufferId> granted;
        auto is_free = [&](BufferId b) { return std::find(granted.begin(), granted.end(), b) == granted.end(); };
        auto find = [](const auto& list, BufferId b) -> const liveness::Residency* {
            for (const liveness::Residency* r : list)
                if (r->buffer == b) return r;
            return nullptr;
        };
        for (const liveness::OverlayRule& rule : graph_.ops()[order_[p]].overlays) {
            if (!(rule.kind & overlays_)) continue;
            const auto *out = find(begins[p], rule.out), *over = find(ends[p], rule.over);
            if (!out || !over || !liveness::may_overlay(*out, *over) || !is_free(rule.out) || !is_free(rule.over))
                continue;
            granted.insert(granted.end(), {rule.out, rule.over});
            during_[p] -= graph_.buffers()[rule.out].bytes;
        }
    }
}

// ---- a walk -------------------------------------------------------------------------------------------------------

std::optional<std::vector<OpId>> LookaheadWalk::run(Bytes budget_bytes, Exponents exponents, CostOf cost_of) {
    const size_t items = buffer_of_.size();
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
    in_chain_.assign(order_.size(), 0);
    result_.clear();
    for (Position p = 0; p < static_cast<Position>(order_.size()); ++p) {
        while (produced_ < static_cast<Item>(items) && producer_[produced_] <= p) ++produced_;
        if (p == drop_at_)
            for (Item item : dropped_)
                if (resident_[item]) evict(item);
        const std::vector<Item>& wanted = forms_[p].reads;
        const std::vector<Position> chain = missing_producers(wanted);
        for (Item item : wanted) ++locked_[item];
        for (Position q : chain)
            for (Item item : again_[q].reads) ++locked_[item];
        for (Position q : chain) {
            for (Item item : again_[q].reads) --locked_[item];
            if (!repeatable_[q] || !run_form(again_[q], p, true, order_[q])) return std::nullopt;
        }
        for (Item item : wanted) --locked_[item];
        if (!run_form(forms_[p], p, false, order_[p])) return std::nullopt;
    }
    return result_;
}

// Positions of the producers to run again so that `wanted` is resident, ascending.
std::vector<Position> LookaheadWalk::missing_producers(const std::vector<Item>& wanted) {
    std::vector<Position> chain;
    std::vector<Item> stack;
    auto add_missing = [&](const std::vector<Item>& list) {
        for (Item item : list)
            if (!resident_[item]) stack.push_back(item);
    };
    add_missing(wanted);
    while (!stack.empty()) {
        const Position producer = producer_[stack.back()];
        stack.pop_back();
        if (in_chain_[producer]) continue;
        in_chain_[producer] = 1;
        chain.push_back(producer);
        add_missing(again_[producer].reads);
    }
    for (Position p : chain) in_chain_[p] = 0;
    std::sort(chain.begin(), chain.end());
    return chain;
}

// Allocates what the op writes, once enough was evicted for it.
bool LookaheadWalk::run_form(const Form& form, Position at, bool is_recompute, OpId op) {
    for (Item item : form.writes)
        if (!resident_[item]) {
            set_resident(item, true);  // so that find_needs() does not count its recomputation
            used_bytes_ += bytes_[item];
        }
    const Bytes limit = budget_bytes_ - (is_recompute ? before_[at] : during_[at]) - form.workspace_bytes;
    for (Item item : form.writes) ++locked_[item];
    const bool fits = used_bytes_ <= limit || evict_until_fits(form, at, is_recompute ? at : at + 1, limit);
    for (Item item : form.writes) --locked_[item];
    result_.push_back(op);
    return fits;
}

// Evicts until `used_bytes_` is within `limit`.  What the op reads for the last time gives way too where an output may
// lie on it, for it leaves no byte beside that output.
bool LookaheadWalk::evict_until_fits(const Form& form, Position at, Position now, Bytes limit) {
    find_needs(now);
    auto reads = [&](Item item) { return std::find(form.reads.begin(), form.reads.end(), item) != form.reads.end(); };
    residents_.for_each([&](Item item) {
        if (!locked_[item] && need_[item] == kNever && !reads(item)) evict(item);
    });
    // The overlays that are possible here, each out and each over once.
    std::vector<const Form::Overlay*> overlays;
    auto begins_here = [&](const Form::Overlay& o) {
        if (o.out >= 0) return std::find(form.writes.begin(), form.writes.end(), o.out) != form.writes.end();
        return now > at && std::find(begins_[at].begin(), begins_[at].end(), o.out_buffer) != begins_[at].end();
    };
    std::vector<BufferId> taken;
    auto grant = [&](const Form::Overlay& o) {
        for (BufferId b : taken)
            if (b == o.out_buffer || b == buffer_of_[o.over]) return false;
        taken.insert(taken.end(), {o.out_buffer, buffer_of_[o.over]});
        return true;
    };
    std::vector<Item> consumed;
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
        Item best = -1;
        const Form::Overlay* best_overlay = nullptr;
        double most = -1;
        residents_.for_each([&](Item item) {
            if (locked_[item] || bytes_[item] == 0 || reads(item)) return;
            const double value = score(item, now);
            if (value > most) {
                most = value;
                best = item;
            }
        });
        for (const Form::Overlay* o : overlays) {
            if (std::any_of(taken.begin(), taken.end(),
                            [&](BufferId b) { return b == o->out_buffer || b == buffer_of_[o->over]; }))
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
    for (Item item : consumed) evict(item);
    return true;
}

void LookaheadWalk::evict(Item item) {
    set_resident(item, false);
    used_bytes_ -= bytes_[item];
}

void LookaheadWalk::set_resident(Item item, bool resident) {
    resident_[item] = resident;
    if (resident)
        residents_.add(item);
    else
        residents_.remove(item);
    forget_needs_of_inputs(item);
    forget_costs_of_outputs(item);
}

double LookaheadWalk::score(Item item, Position now) const {
    const double distance = need_[item] - now + 1;
    return static_cast<double>(bytes_[item]) * power_of_halves(distance, exponents_.distance) /
           power_of_halves(std::max(cost_[item], kLeastSeconds), exponents_.cost);
}

// cost   seconds to recompute a value from what is resident; what two of its inputs share counts twice
// need   position of the first op from `now` on that reads a value, or the recomputation of an evicted one that will
//
// Both are computed anew only where something changed that they depend on; of the costs those of values that were there
// and are still needed.  A step counts as if all were.
void LookaheadWalk::find_needs(Position now) {
    const auto items = static_cast<Item>(buffer_of_.size());
    steps_ += items;
    for (; passed_ < now; ++passed_)
        for (Item item : forms_[passed_].reads) stale_needs_.add(item);
    find_costs(0, now);
    find_needs_below(items, now);
}

// The same after one eviction: costs change above the item, needs below it.
void LookaheadWalk::find_needs_without(Item evicted, Position now) {
    steps_ += static_cast<int64_t>(buffer_of_.size()) / 2;
    find_costs(evicted + 1, now);
    find_needs_below(evicted, now);
}

void LookaheadWalk::find_costs(Item first, Position now) {
    stale_costs_.take_rising(first, produced_, [&](Item item) {
        if (last_need_[item] < now) return;  // recomputed no more
        const double cost = cost_of(item);
        if (cost == cost_[item]) return;
        cost_[item] = cost;
        if (!resident_[item]) forget_costs_of_outputs(item);
    });
}

void LookaheadWalk::find_needs_below(Item end, Position now) {
    stale_needs_.take_falling(end, [&](Item item) {
        const double need = need_of(item, now);
        if (need == need_[item]) return;
        need_[item] = need;
        if (!resident_[item]) forget_needs_of_inputs(item);
    });
}

double LookaheadWalk::cost_of(Item item) const {
    const Position p = producer_[item];
    double cost = cost_of_ == CostOf::kSeconds ? again_seconds_[p] : 1.0;
    for (Item input : again_[p].reads)
        if (!resident_[input]) cost += cost_[input];
    return cost;
}

double LookaheadWalk::need_of(Item item, Position now) {
    const auto& uses = uses_[item];
    size_t& next = next_use_[item];
    while (next < uses.size() && uses[next] < now) ++next;
    double need = next < uses.size() ? uses[next] : kNever;
    for (Position p : recomputed_from_[item])
        for (Item output : again_[p].writes)
            if (!resident_[output] && output > item) need = std::min(need, need_[output] + 0.5);
    return need;
}

void LookaheadWalk::forget_needs_of_inputs(Item item) {
    for (Item input : again_[producer_[item]].reads) stale_needs_.add(input);
}

void LookaheadWalk::forget_costs_of_outputs(Item item) {
    for (Item output : outputs_[item]) stale_costs_.add(output);
}

}  // namespace layermem::planning::nested
