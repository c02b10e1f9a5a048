// Layouts: which residencies a plan implies, when their copies run, and what they cost in bytes and seconds.
//
// Strategies call this for every candidate, so each function is one pass over ops or residencies; sorting the copies is
// all that takes more than linear time.
#include "planning/liveness/layout.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace layermem::planning::liveness {

// ---- construction -------------------------------------------------------------------------------------------------

BufferId LayoutGraph::add_buffer(Buffer buffer) {
    buffers_.push_back(std::move(buffer));
    return static_cast<BufferId>(buffers_.size()) - 1;
}

OpId LayoutGraph::add_op(Op op) {
    const auto count = static_cast<BufferId>(buffers_.size());
    for (const auto* list : {&op.reads, &op.updates, &op.writes})
        for (BufferId b : *list)
            if (b < 0 || b >= count) throw std::invalid_argument("'" + op.name + "' touches an unknown buffer");
    if (op.recompute >= static_cast<OpId>(ops_.size())) {
        // A recomputation is an op of its own, so its id must exist.
        throw std::invalid_argument("add the recomputation of '" + op.name + "' before the op itself");
    }
    ops_.push_back(std::move(op));
    return static_cast<OpId>(ops_.size()) - 1;
}

// ---- residencies --------------------------------------------------------------------------------------------------

// The first occurrence of an op runs as itself, each later one as its recomputation.
std::vector<OpId> LayoutGraph::resolve_recomputes(const Plan& plan) const {
    std::vector<OpId> ops;
    std::vector<char> has_run(ops_.size(), 0);
    for (OpId id : plan.order) {
        if (id < 0 || id >= static_cast<OpId>(ops_.size())) throw std::invalid_argument("the plan runs an unknown op");
        if (has_run[id] && ops_[id].recompute < 0)
            throw std::invalid_argument("the plan runs '" + ops_[id].name + "' twice, but it cannot be repeated");
        ops.push_back(has_run[id] ? ops_[id].recompute : id);
        has_run[id] = 1;
    }
    return ops;
}

// Uses by buffer, gaps by buffer, then the residencies of each buffer in turn.  This order matters: copies of one
// position run in it.
Layout LayoutGraph::lay_out(const Plan& plan) const {
    Layout layout{resolve_recomputes(plan), {}};
    std::vector<std::vector<Use>> uses(buffers_.size());
    for (Position p = 0; p < static_cast<Position>(layout.ops.size()); ++p) {
        const Op& op = ops_[layout.ops[p]];
        for (BufferId b : op.reads) uses[b].push_back({p, true, false});
        for (BufferId b : op.updates) uses[b].push_back({p, true, true});
        for (BufferId b : op.writes) uses[b].push_back({p, false, true});
    }
    std::vector<std::vector<Gap>> gaps(buffers_.size());
    for (const Gap& gap : plan.decisions) gaps.at(gap.buffer).push_back(gap);
    for (BufferId b = 0; b < static_cast<BufferId>(buffers_.size()); ++b)
        if (!uses[b].empty()) add_residencies(b, uses[b], gaps[b], layout);
    time_copies(plan, layout);
    return layout;
}

// One pass over the uses.  A residency ends at an offloaded gap, and at a gap whose next use overwrites the bytes
// without reading them.  `on_host` tracks whether the host has a valid copy of the bytes: a residency whose bytes the
// host has already is left without a copy.
void LayoutGraph::add_residencies(BufferId b, const std::vector<Use>& uses, const std::vector<Gap>& gaps,
                                  Layout& layout) const {
    auto find_gap = [&](int32_t use) -> const Gap* {
        auto it = std::find_if(gaps.begin(), gaps.end(), [&](const Gap& g) { return g.use == use; });
        return it == gaps.end() ? nullptr : &*it;
    };
    auto name_at = [&](const Use& use) { return ops_[layout.ops[use.position]].name; };
    const Buffer& buffer = buffers_[b];

    // A persistent buffer stays on the device unless its last gap offloads it; any other only if that gap keeps it.
    const Gap* wrap = find_gap(-1);
    const bool permanent =
        buffer.persistent ? !wrap || wrap->decision != Decision::offload : wrap && wrap->decision == Decision::keep;
    if (permanent) {
        const Position end = uses.back().position + 1;
        layout.residencies.push_back({b, uses.front().position, end, end, -1, false, true});
        return;
    }

    bool on_host = buffer.persistent;  // an offloaded persistent buffer begins the step in host memory
    bool is_resident = false;
    Residency residency{};
    for (size_t number = 0; number < uses.size(); ++number) {
        const Use& use = uses[number];
        if (!is_resident) {
            if (use.reads && !on_host)
                throw std::invalid_argument("the plan reads '" + buffer.name + "' at " + name_at(use) +
                                            " before anything made it");
            const Position issue = use.reads ? use.position : -1;
            residency = {b, use.position, use.position + 1, use.position + 1, issue, false, false};
            is_resident = true;
        }
        // `release` is provisional: where a copy follows, delay_releases() moves it.
        residency.end = use.position + 1;
        residency.release = residency.end;
        on_host = on_host && !use.writes;
        // After the last use, only a persistent buffer whose newest bytes the host lacks needs a copy.
        if (number + 1 == uses.size()) {
            residency.offloads = buffer.persistent && !on_host;
            layout.residencies.push_back(residency);
            return;
        }
        // What happens in the gap before the next use depends on that use too: without a read no bytes are needed.
        const Use& next = uses[number + 1];
        const Gap* gap = find_gap(static_cast<int32_t>(number));
        if (gap && gap->decision == Decision::offload && next.reads) {
            residency.offloads = !on_host;
            on_host = true;
            layout.residencies.push_back(residency);
            is_resident = false;
        } else if (!next.reads) {
            layout.residencies.push_back(residency);
            is_resident = false;
        } else if (gap && gap->decision == Decision::recompute) {
            throw std::invalid_argument("the plan frees '" + buffer.name + "' without recomputing it before " +
                                        name_at(next) + " reads it");
        }
    }
}

// ---- copies -------------------------------------------------------------------------------------------------------

// Moves releases later and issues earlier, in the modelled time of the compute stream alone: starts[p] is when the op
// at position p starts, and its last entry the end of the step.
void LayoutGraph::time_copies(const Plan& plan, Layout& layout) const {
    std::vector<Residency*> offloaded, prefetched;
    std::vector<std::vector<Position>> ends(buffers_.size());
    for (Residency& residency : layout.residencies) {
        if (residency.offloads) offloaded.push_back(&residency);
        if (residency.issue >= 0) prefetched.push_back(&residency);
        ends[residency.buffer].push_back(residency.end);
    }
    if (offloaded.empty() && prefetched.empty()) return;
    std::vector<Seconds> starts(layout.ops.size() + 1, 0.0);
    for (size_t p = 0; p < layout.ops.size(); ++p) starts[p + 1] = starts[p] + ops_[layout.ops[p]].seconds;
    delay_releases(plan.copy_lead, starts, offloaded);
    advance_issues(plan.copy_lead, starts, ends, prefetched);
}

// Each offload starts as early as the d2h queue permits; its bytes are free once the share `copy_lead` of it is done.
void LayoutGraph::delay_releases(double copy_lead, const std::vector<Seconds>& starts,
                                 std::vector<Residency*>& offloaded) const {
    const auto begin = starts.begin();
    const auto end = starts.end() - 1;
    std::stable_sort(offloaded.begin(), offloaded.end(),
                     [](const Residency* a, const Residency* b) { return a->end < b->end; });
    // The d2h stream runs copies one by one: `queue_free` is when it can start the next.
    Seconds queue_free = 0;
    for (Residency* residency : offloaded) {
        const Seconds duration = buffers_[residency->buffer].offload_seconds;
        const Seconds start = std::max(queue_free, starts[residency->end]);
        queue_free = start + duration;
        const Seconds done = start + duration * std::min(copy_lead, 1.0);
        const auto position = static_cast<Position>(std::lower_bound(begin, end, done) - begin);
        // Without a lead the copy runs as an op of its own would: the bytes are free right after it.
        residency->release = copy_lead > 0 ? std::max(residency->end, position) : residency->end;
    }
}

// Each prefetch starts as late as the h2d queue permits, from the last one backwards, but not before the residency of
// the same buffer before it has ended (`ends`, per buffer).
void LayoutGraph::advance_issues(double copy_lead, const std::vector<Seconds>& starts,
                                 const std::vector<std::vector<Position>>& ends,
                                 std::vector<Residency*>& prefetched) const {
    const auto begin = starts.begin();
    const auto end = starts.end() - 1;
    std::reverse(prefetched.begin(), prefetched.end());
    std::stable_sort(prefetched.begin(), prefetched.end(),
                     [](const Residency* a, const Residency* b) { return a->begin > b->begin; });
    // The h2d stream seen from the end of the step: `queue_free` is when the later prefetches need it.
    Seconds queue_free = starts.back();
    for (Residency* residency : prefetched) {
        const Seconds duration = buffers_[residency->buffer].prefetch_seconds;
        queue_free = std::min(queue_free, starts[residency->begin]) - duration;
        const Seconds start = copy_lead >= 1 ? queue_free : starts[residency->begin] - duration * copy_lead;
        auto issue = static_cast<Position>(std::upper_bound(begin, end, start) - begin) - 1;
        issue = std::max(issue, 0);
        // A buffer is never resident twice: its prefetch is issued after the residency before it has ended.
        for (Position p : ends[residency->buffer])
            if (p <= residency->begin) issue = std::max(issue, p);
        residency->issue = std::min(residency->begin, issue);
    }
}

// ---- measures -----------------------------------------------------------------------------------------------------

// Differences per position, then their running sum.  An overlay granted to an op takes the bytes of `out` back at the
// op's own position: there, and only there, both residencies are counted.
Bytes LayoutGraph::peak_live_bytes(const Plan& plan, const Layout& layout) const {
    const auto n = static_cast<Position>(layout.ops.size());
    std::vector<Bytes> change(static_cast<size_t>(n) + 2, 0);
    std::vector<std::vector<const Residency*>> by_buffer(buffers_.size());
    for (const Residency& r : layout.residencies) {
        const Bytes bytes = buffers_[r.buffer].bytes;
        by_buffer[r.buffer].push_back(&r);
        // A prefetched buffer occupies its bytes from the moment the copy is issued.
        const Position begin = r.issue < 0 ? r.begin : r.issue;
        change[r.permanent ? 0 : begin] += bytes;
        if (!r.permanent) change[std::min(r.release, n)] -= bytes;
    }
    // Few residencies per buffer: a linear look is faster than an index.
    auto find_residency = [&](BufferId buffer, Position p, bool begins) -> const Residency* {
        for (const Residency* r : by_buffer[buffer])
            if (begins ? r->begin == p : r->end == p + 1) return r;
        return nullptr;
    };
    std::vector<BufferId> granted;  // buffers of this op that share bytes already: each may do so once
    for (Position p = 0; p < n; ++p) {
        const Op& op = ops_[layout.ops[p]];
        granted.clear();
        for (const OverlayRule& rule : op.overlays) {
            // Both ends must meet at this op: `out` begins here, `over` ends here, and no copy needs the old bytes.
            if (!(rule.kind & plan.overlays)) continue;
            const Residency* out = find_residency(rule.out, p, true);
            const Residency* over = find_residency(rule.over, p, false);
            if (!out || !over || !may_overlay(*out, *over)) continue;
            auto is_party = [&](BufferId b) { return b == rule.out || b == rule.over; };
            if (std::any_of(granted.begin(), granted.end(), is_party)) continue;
            granted.push_back(rule.out);
            granted.push_back(rule.over);
            change[out->permanent ? 0 : p] -= buffers_[rule.out].bytes;
            if (!out->permanent) change[p + 1] += buffers_[rule.out].bytes;
        }
        change[p] += op.workspace_bytes;
        change[p + 1] -= op.workspace_bytes;
    }
    Bytes live = 0, peak = 0;
    for (Bytes delta : change) {
        live += delta;
        peak = std::max(peak, live);
    }
    return peak;
}

// Simulates three streams: compute runs the ops in order, d2h and h2d each one copy at a time.
Seconds LayoutGraph::estimate_seconds(const Layout& layout) const {
    const auto& residencies = layout.residencies;
    const size_t n = layout.ops.size() + 1;
    // Indices of residencies by position: where a prefetch is issued, where the op waits for it, where an offload is
    // issued, and where its bytes are reused.
    std::vector<std::vector<int>> prefetches(n), awaited(n), offloads(n), released(n);
    for (int i = 0; i < static_cast<int>(residencies.size()); ++i) {
        const Residency& r = residencies[i];
        if (r.issue >= 0) {
            prefetches[r.issue].push_back(i);
            awaited[r.begin].push_back(i);
        }
        if (r.offloads) {
            offloads[r.end - 1].push_back(i);
            released[std::min<size_t>(r.release, n - 1)].push_back(i);
        }
    }
    for (auto& list : prefetches) {
        std::stable_sort(list.begin(), list.end(),
                         [&](int a, int b) { return residencies[a].begin < residencies[b].begin; });
    }
    std::vector<Seconds> offloaded_at(residencies.size(), 0), prefetched_at(residencies.size(), 0);
    std::vector<Seconds> on_host_at(buffers_.size(), 0);
    Seconds compute = 0, d2h = 0, h2d = 0;  // when each stream is free
    for (size_t p = 0; p + 1 < n; ++p) {
        // The op waits for bytes that an offload still reads, then issues prefetches, then waits for its own.
        for (int i : released[p]) compute = std::max(compute, offloaded_at[i]);
        for (int i : prefetches[p]) {
            const BufferId b = residencies[i].buffer;
            h2d = std::max({h2d, compute, on_host_at[b]}) + buffers_[b].prefetch_seconds;
            prefetched_at[i] = h2d;
        }
        for (int i : awaited[p]) compute = std::max(compute, prefetched_at[i]);
        compute += ops_[layout.ops[p]].seconds;
        for (int i : offloads[p]) {
            const BufferId b = residencies[i].buffer;
            d2h = std::max(d2h, compute) + buffers_[b].offload_seconds;
            on_host_at[b] = d2h;
            offloaded_at[i] = d2h;
        }
    }
    return std::max({compute, d2h, h2d});
}

}  // namespace layermem::planning::liveness
