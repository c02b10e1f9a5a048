#include "planning/nested/order_items.h"

#include <algorithm>
#include <numeric>

namespace layermem::planning::nested {

OrderItems::OrderItems(const LayoutGraph& graph, std::vector<OpId> ops, const std::vector<BufferId>& evictable,
                       int overlays, const std::vector<liveness::Gap>& decisions)
    : order(std::move(ops)) {
    const auto n = static_cast<Position>(order.size());
    std::vector<char> is_evictable(graph.buffers().size(), 0);
    for (BufferId b : evictable) is_evictable.at(b) = 1;
    items.assign(graph.buffers().size(), -1);
    for (Position p = 0; p < n; ++p)
        for (BufferId b : graph.ops().at(order[p]).writes)
            if (is_evictable[b] && items[b] < 0) {
                items[b] = static_cast<Evictable>(buffers.size());
                buffers.push_back(b);
                bytes.push_back(graph.buffers()[b].bytes);
                producers.push_back(p);
            }
    for (Position p = 0; p < n; ++p) {
        const liveness::Op& op = graph.ops()[order[p]];
        forms.push_back(make_form(graph, order[p], overlays));
        repeatable.push_back(op.recompute >= 0);
        again.push_back(op.recompute >= 0 ? make_form(graph, op.recompute, overlays) : Form{});
        again_seconds.push_back(op.recompute >= 0 ? graph.ops()[op.recompute].seconds : 0.0);
    }
    count_other_bytes(graph, overlays, decisions);
}

Form OrderItems::make_form(const LayoutGraph& graph, OpId id, int overlays) const {
    const liveness::Op& op = graph.ops()[id];
    Form form;
    form.workspace_bytes = op.workspace_bytes;
    for (const auto* list : {&op.reads, &op.updates})
        for (BufferId b : *list)
            if (items[b] >= 0) form.reads.push_back(items[b]);
    for (BufferId b : op.writes)
        if (items[b] >= 0) form.writes.push_back(items[b]);
    for (const liveness::OverlayRule& rule : op.overlays)
        if ((rule.kind & overlays) && items[rule.over] >= 0)
            form.overlays.push_back({items[rule.out], rule.out, items[rule.over], graph.buffers()[rule.out].bytes});
    return form;
}

// Lifetimes of buffers that are not evictable, as if every op ran once.  A recomputation may read some of them later,
// which the exact bytes of the result include.
void OrderItems::count_other_bytes(const LayoutGraph& graph, int overlays,
                                   const std::vector<liveness::Gap>& decisions) {
    const auto n = static_cast<Position>(order.size());
    const liveness::Plan plan{order, decisions, overlays, 1.0};
    const liveness::Layout layout = graph.lay_out(plan);
    during.assign(n + 1, 0);
    before.assign(n + 1, 0);
    begins.resize(n);
    std::vector<std::vector<const liveness::Residency*>> begin_at(n), end_at(n);
    for (const liveness::Residency& r : layout.residencies) {
        if (items[r.buffer] >= 0) continue;
        const Bytes bytes = graph.buffers()[r.buffer].bytes;
        const bool prefetched = r.issue >= 0;
        const Position begin = r.permanent ? 0 : prefetched ? r.issue : r.begin;
        const Position end = r.permanent ? n : std::min(r.release, n);
        during[begin] += bytes;
        during[end] -= bytes;
        before[r.permanent || prefetched ? begin : std::min(begin + 1, end)] += bytes;
        before[end] -= bytes;
        begin_at[r.begin].push_back(&r);
        end_at[r.end - 1].push_back(&r);
        if (!prefetched) begins[r.begin].push_back(r.buffer);
    }
    std::partial_sum(during.begin(), during.end(), during.begin());
    std::partial_sum(before.begin(), before.end(), before.begin());
    during.pop_back();
    before.pop_back();
    for (Position p = 0; p < n; ++p) {
        std::vector<BufferId> granted;
        auto is_free = [&](BufferId b) { return std::find(granted.begin(), granted.end(), b) == granted.end(); };
        auto find = [](const auto& list, BufferId b) -> const liveness::Residency* {
            for (const liveness::Residency* r : list)
                if (r->buffer == b) return r;
            return nullptr;
        };
        for (const liveness::OverlayRule& rule : graph.ops()[order[p]].overlays) {
            if (!(rule.kind & overlays)) continue;
            const auto *out = find(begin_at[p], rule.out), *over = find(end_at[p], rule.over);
            if (!out || !over || !liveness::may_overlay(*out, *over) || !is_free(rule.out) || !is_free(rule.over))
                continue;
            granted.insert(granted.end(), {rule.out, rule.over});
            during[p] -= graph.buffers()[rule.out].bytes;
        }
    }
}

}  // namespace layermem::planning::nested
