// Layouts: the residencies of a plan, the times of their copies, and their costs in bytes and seconds.
//
// Strategies call this for every candidate, so each function is one pass over ops or residencies.
#include "planning/liveness/layout.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace layermem::planning::liveness {
namespace {

// Sorts the items by key, from 0 to `most`; items with the same key keep their order.  Plans have about as many copies
// as positions, so counting takes a tenth of the time of comparing.
template <class Item, class Key>
std::vector<Item> by_position(const std::vector<Item>& items, Position most, Key key) {
    std::vector<int32_t> next(static_cast<size_t>(most) + 2, 0);
    for (const Item& item : items) ++next[key(item) + 1];
    std::partial_sum(next.begin(), next.end(), next.begin());
    std::vector<Item> sorted(items.size());
    for (const Item& item : items) sorted[next[key(item)]++] = item;
    return sorted;
}

// Bytes in use at each position, with range additions that stop at a limit.  Most ranges are long, so whole blocks of
// positions are added to at once.
class LimitedProfile {
  public:
    LimitedProfile(std::vector<Bytes> live, Bytes limit_bytes) : live_(std::move(live)), limit_bytes_(limit_bytes) {
        for (size_t p = 0; p < live_.size(); p += kBlock) {
            const size_t end = std::min(live_.size(), p + kBlock);
            blocks_.push_back({0, *std::max_element(live_.begin() + static_cast<std::ptrdiff_t>(p),
                                                    live_.begin() + static_cast<std::ptrdiff_t>(end))});
        }
    }
    // Adds from `begin` on, at most up to `end`; returns the first position without the bytes.
    Position hold_after(Position begin, Position end, Bytes bytes) {
        Position p = begin;
        while (p < end) {
            const bool is_whole = p % kBlock == 0 && p + kBlock <= end && add_to_block(p / kBlock, bytes);
            if (!is_whole && !add(p, bytes)) break;
            p += is_whole ? kBlock : 1;
        }
        return p;
    }
    // Adds from `end` backwards, at most down to `begin`; returns the first position with the bytes.
    Position hold_before(Position end, Position begin, Bytes bytes) {
        Position p = end;
        while (p > begin) {
            const bool is_whole = p % kBlock == 0 && p - kBlock >= begin && add_to_block(p / kBlock - 1, bytes);
            if (!is_whole && !add(p - 1, bytes)) break;
            p -= is_whole ? kBlock : 1;
        }
        return p;
    }
    std::vector<Bytes> take() {
        for (size_t p = 0; p < live_.size(); ++p) live_[p] += blocks_[p / kBlock].added;
        return std::move(live_);
    }

  private:
    static constexpr Position kBlock = 16;
    struct Block {
        Bytes added;  // to all of its positions, in addition to live_
        Bytes most;   // at one of them, in all
    };
    bool add(Position p, Bytes bytes) {
        Block& block = blocks_[p / kBlock];
        if (live_[p] + block.added + bytes > limit_bytes_) return false;
        live_[p] += bytes;
        block.most = std::max(block.most, live_[p] + block.added);
        return true;
    }
    bool add_to_block(Position number, Bytes bytes) {
        Block& block = blocks_[number];
        if (block.most + bytes > limit_bytes_) return false;
        block.added += bytes;
        block.most += bytes;
        return true;
    }

    std::vector<Bytes> live_;
    const Bytes limit_bytes_;
    std::vector<Block> blocks_;
};

}  // namespace

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
        // A recomputation is a separate op, so its id must exist.
        throw std::invalid_argument("add the recomputation of '" + op.name + "' before the op itself");
    }
    ops_.push_back(std::move(op));
    return static_cast<OpId>(ops_.size()) - 1;
}

// ---- residencies --------------------------------------------------------------------------------------------------

// The first occurrence of an op runs as itself, each later one as its recomputation.
std::vector<OpId> LayoutGraph::resolve_recomputes(const std::vector<OpId>& order) const {
    std::vector<OpId> ops;
    ops.reserve(order.size());
    std::vector<char> has_run(ops_.size(), 0);
    for (OpId id : order) {
        if (id < 0 || id >= static_cast<OpId>(ops_.size())) throw std::invalid_argument("the plan runs an unknown op");
        if (has_run[id] && ops_[id].recompute < 0)
            throw std::invalid_argument("the plan runs '" + ops_[id].name + "' twice, but it cannot be repeated");
        ops.push_back(has_run[id] ? ops_[id].recompute : id);
        has_run[id] = 1;
    }
    return ops;
}

// The uses are sorted by buffer with one pass that counts them and one that puts them in their places.
Order LayoutGraph::prepare(const std::vector<OpId>& order) const {
    Order out{resolve_recomputes(order), {}, {}, {}, std::vector<int32_t>(buffers_.size() + 1, 0)};
    out.starts.assign(out.ops.size() + 1, 0.0);
    for (size_t p = 0; p < out.ops.size(); ++p) {
        const Op& op = ops_[out.ops[p]];
        out.starts[p + 1] = out.starts[p] + (op.comm ? 0.0 : op.seconds);
        if (op.comm) out.comm.push_back(static_cast<Position>(p));
        for (const auto* list : {&op.reads, &op.updates, &op.writes})
            for (BufferId b : *list) ++out.first_use[b + 1];
    }
    std::partial_sum(out.first_use.begin(), out.first_use.end(), out.first_use.begin());
    out.uses.resize(out.first_use.back());
    std::vector<int32_t> next(out.first_use.begin(), out.first_use.end() - 1);
    for (Position p = 0; p < static_cast<Position>(out.ops.size()); ++p) {
        const Op& op = ops_[out.ops[p]];
        for (BufferId b : op.reads) out.uses[next[b]++] = {p, true, false};
        for (BufferId b : op.updates) out.uses[next[b]++] = {p, true, true};
        for (BufferId b : op.writes) out.uses[next[b]++] = {p, false, true};
    }
    return out;
}

// The residencies of each buffer in turn.  This order matters: copies of one position run in it.
Layout LayoutGraph::lay_out(const Order& order, const std::vector<Gap>& decisions, const CopyTiming& timing) const {
    Layout layout{order.ops, {}, {}, {}, 0};
    layout.residencies.reserve(buffers_.size() + decisions.size());
    // Decisions by use; if a gap is named twice, the first decision counts.
    std::vector<Decision> by_use(order.uses.size(), Decision::keep);
    std::vector<const Gap*> wraps(decisions.empty() ? 0 : buffers_.size(), nullptr);
    for (auto gap = decisions.rbegin(); gap != decisions.rend(); ++gap) {
        const int32_t first = order.first_use.at(gap->buffer);
        if (gap->use < 0)
            wraps.at(gap->buffer) = &*gap;
        else if (first + gap->use < order.first_use.at(gap->buffer + 1))
            by_use[first + gap->use] = gap->decision;
    }
    for (BufferId b = 0; b < static_cast<BufferId>(buffers_.size()); ++b) {
        const int32_t first = order.first_use[b], last = order.first_use[b + 1];
        if (first == last) continue;
        const Gap* wrap = wraps.empty() ? nullptr : wraps[b];
        const Use* uses = order.uses.data();
        add_residencies(
            b,
            {uses + first, uses + last, by_use.data() + first, wrap ? wrap->decision : Decision::keep, wrap != nullptr},
            layout);
    }
    time_copies(timing.lead, order.starts, layout);
    if (!order.comm.empty()) delay_comm_releases(timing.lead, order, layout);
    if (timing.limit_bytes != kNoLimit) shorten_copies(timing, layout);
    return layout;
}

// Makes one pass over the uses.  A residency ends at an offloaded gap, and at a gap whose next use overwrites the bytes
// without reading them.  `on_host` tracks whether the host has a valid copy of the bytes: a residency whose bytes are
// already on the host needs no copy.
void LayoutGraph::add_residencies(BufferId b, const Uses& uses, Layout& layout) const {
    auto name_at = [&](const Use& use) { return ops_[layout.ops[use.position]].name; };
    const Buffer& buffer = buffers_[b];

    // A persistent buffer stays on the device unless its last gap offloads it; any other only if that gap keeps it.
    const bool permanent =
        buffer.persistent ? uses.wrap != Decision::offload : uses.has_wrap && uses.wrap == Decision::keep;
    if (permanent) {
        const Position end = uses.end[-1].position + 1;
        layout.residencies.push_back({b, uses.begin->position, end, end, -1, false, true});
        return;
    }

    bool on_host = buffer.persistent;  // an offloaded persistent buffer begins the step in host memory
    bool is_resident = false;
    Residency residency{};
    for (const Use* use = uses.begin; use != uses.end; ++use) {
        if (!is_resident) {
            if (use->reads && !on_host)
                throw std::invalid_argument("the plan reads '" + buffer.name + "' at " + name_at(*use) +
                                            " before anything made it");
            const Position issue = use->reads ? use->position : -1;
            residency = {b, use->position, use->position + 1, use->position + 1, issue, false, false};
            is_resident = true;
        }
        // `release` is provisional: delay_releases() moves it if a copy follows.
        residency.end = use->position + 1;
        residency.release = residency.end;
        on_host = on_host && !use->writes;
        // After the last use, only a persistent buffer whose newest bytes the host lacks needs a copy.
        const Use* next = use + 1;
        if (next == uses.end) {
            residency.offloads = buffer.persistent && !on_host;
            layout.residencies.push_back(residency);
            return;
        }
        // The decision for the gap before the next use depends on that use too: without a read no bytes are needed.
        const Decision decision = uses.decisions[use - uses.begin];
        if (decision == Decision::offload && next->reads) {
            residency.offloads = !on_host;
            on_host = true;
            layout.residencies.push_back(residency);
            is_resident = false;
        } else if (!next->reads) {
            layout.residencies.push_back(residency);
            is_resident = false;
        } else if (decision == Decision::recompute) {
            throw std::invalid_argument("the plan frees '" + buffer.name + "' without recomputing it before " +
                                        name_at(*next) + " reads it");
        }
    }
}

// ---- copies -------------------------------------------------------------------------------------------------------

// Returns, for each buffer, the index of its first residency; the last entry is their number.
std::vector<int32_t> LayoutGraph::first_residency(const Layout& layout) const {
    std::vector<int32_t> first(buffers_.size() + 1, 0);
    for (const Residency& residency : layout.residencies) ++first[residency.buffer + 1];
    std::partial_sum(first.begin(), first.end(), first.begin());
    return first;
}

// Moves releases later and issues earlier, in the modelled time of the compute stream alone (Order::starts).
void LayoutGraph::time_copies(double copy_lead, const std::vector<Seconds>& starts, Layout& layout) const {
    std::vector<Residency*> offloaded, prefetched;
    for (Residency& residency : layout.residencies) {
        if (residency.offloads) offloaded.push_back(&residency);
        if (residency.issue >= 0) prefetched.push_back(&residency);
    }
    delay_releases(copy_lead, starts, offloaded);
    if (!prefetched.empty()) advance_issues(copy_lead, starts, layout, prefetched);
}

// Each offload starts as early as the d2h queue permits; its bytes are free once the share `copy_lead` of it is done.
void LayoutGraph::delay_releases(double copy_lead, const std::vector<Seconds>& starts,
                                 const std::vector<Residency*>& offloaded) const {
    const auto begin = starts.begin();
    const auto end = starts.end() - 1;
    const auto last = static_cast<Position>(end - begin);
    // The d2h stream runs copies one by one: `queue_free` is when it can start the next.
    Seconds queue_free = 0;
    for (Residency* residency : by_position(offloaded, last, [](const Residency* r) { return r->end; })) {
        const Seconds duration = buffers_[residency->buffer].offload_seconds;
        const Seconds start = std::max(queue_free, starts[residency->end]);
        queue_free = start + duration;
        const Seconds done = start + duration * std::min(copy_lead, 1.0);
        const auto position = static_cast<Position>(std::lower_bound(begin, end, done) - begin);
        // Without a lead the op after the residency waits for the copy: the bytes are free right after it.
        residency->release = copy_lead > 0 ? std::max(residency->end, position) : residency->end;
    }
}

// Does the same for the ops on the communication stream, each as early as its queue permits.
std::vector<Position> LayoutGraph::comm_releases(const Order& order, double copy_lead) const {
    const auto begin = order.starts.begin();
    const auto end = order.starts.end() - 1;
    std::vector<Position> releases;
    releases.reserve(order.comm.size());
    Seconds queue_free = 0;
    for (const Position p : order.comm) {
        const Seconds duration = ops_[order.ops[p]].seconds;
        const Seconds start = std::max(queue_free, order.starts[p]);
        queue_free = start + duration;
        const Seconds done = start + duration * std::min(copy_lead, 1.0);
        const auto position = static_cast<Position>(std::lower_bound(begin, end, done) - begin);
        releases.push_back(copy_lead > 0 ? std::max(p + 1, position) : p + 1);
    }
    return releases;
}

// Bytes that one of these ops touches last, and its workspace, are free once the op is done.
void LayoutGraph::delay_comm_releases(double copy_lead, const Order& order, Layout& layout) const {
    const std::vector<Position> releases = comm_releases(order, copy_lead);
    layout.comm_release.assign(order.ops.size(), 0);
    for (size_t i = 0; i < releases.size(); ++i) layout.comm_release[order.comm[i]] = releases[i];
    for (Residency& residency : layout.residencies)
        if (!residency.offloads)
            residency.release = std::max(residency.release, layout.comm_release[residency.end - 1]);
}

// Each prefetch starts as late as the h2d queue permits, from the last one backwards, but not before the residency of
// the same buffer before it has ended.
void LayoutGraph::advance_issues(double copy_lead, const std::vector<Seconds>& starts, const Layout& layout,
                                 std::vector<Residency*>& prefetched) const {
    const std::vector<int32_t> first = first_residency(layout);
    const auto begin = starts.begin();
    const auto end = starts.end() - 1;
    const auto last = static_cast<Position>(end - begin);
    std::reverse(prefetched.begin(), prefetched.end());
    prefetched = by_position(prefetched, last, [last](const Residency* r) { return last - r->begin; });
    // The h2d stream seen from the end of the step: `queue_free` is when the later prefetches need it.
    Seconds queue_free = starts.back();
    for (Residency* residency : prefetched) {
        const Seconds duration = buffers_[residency->buffer].prefetch_seconds;
        queue_free = std::min(queue_free, starts[residency->begin]) - duration;
        const Seconds start = copy_lead >= 1 ? queue_free : starts[residency->begin] - duration * copy_lead;
        auto issue = static_cast<Position>(std::upper_bound(begin, end, start) - begin) - 1;
        issue = std::max(issue, 0);
        // A buffer is never resident twice: its prefetch is issued after the residency before it has ended.
        for (int32_t i = first[residency->buffer]; i < first[residency->buffer + 1]; ++i)
            if (const Position p = layout.residencies[i].end; p <= residency->begin) issue = std::max(issue, p);
        residency->issue = std::min(residency->begin, issue);
    }
}

// Lets copies hold their bytes only as far as the limit permits, in addition to the bytes in use: first offloads, from
// the last one, then prefetches, from the first one.  If bytes are missing, an op waits for the copy instead.
void LayoutGraph::shorten_copies(const CopyTiming& timing, Layout& layout) const {
    std::vector<Bytes> live = live_profile(timing.overlays, layout);
    layout.live_overlays = timing.overlays;
    if (live.empty() || *std::max_element(live.begin(), live.end()) <= timing.limit_bytes) {
        layout.live = std::move(live);
        return;
    }
    const auto n = static_cast<Position>(live.size());
    std::vector<Residency*> offloaded, prefetched;
    std::vector<Bytes> change(live.size() + 1, 0);  // per position, of the bytes that copies hold
    for (Residency& r : layout.residencies) {
        const Bytes bytes = buffers_[r.buffer].bytes;
        if (r.offloads && r.release > r.end) {
            change[std::min(r.end, n)] -= bytes;
            change[std::min(r.release, n)] += bytes;
            offloaded.push_back(&r);
        }
        if (r.issue >= 0 && r.issue < r.begin) {
            change[r.issue] -= bytes;
            change[r.begin] += bytes;
            prefetched.push_back(&r);
        }
    }
    Bytes held = 0;
    for (Position p = 0; p < n; ++p) live[p] += held += change[p];
    LimitedProfile limited(std::move(live), timing.limit_bytes);
    for (Residency* r : by_position(offloaded, n, [n](const Residency* r) { return n - r->end; })) {
        const Position p = limited.hold_after(r->end, std::min(r->release, n), buffers_[r->buffer].bytes);
        if (p < n) r->release = p;
    }
    for (Residency* r : by_position(prefetched, n, [](const Residency* r) { return r->begin; }))
        r->issue = limited.hold_before(r->begin, r->issue, buffers_[r->buffer].bytes);
    layout.live = limited.take();
}

// ---- measures -----------------------------------------------------------------------------------------------------

// Adds differences per position, then their running sum.  An overlay granted to an op removes the bytes of `out` at the
// op's own position, because only there both residencies are counted.
std::vector<Bytes> LayoutGraph::live_profile(int overlays, const Layout& layout) const {
    if (!layout.live.empty() && overlays == layout.live_overlays) return layout.live;
    const auto n = static_cast<Position>(layout.ops.size());
    std::vector<Bytes> change(static_cast<size_t>(n) + 2, 0);
    const std::vector<int32_t> first = first_residency(layout);
    for (const Residency& r : layout.residencies) {
        const Bytes bytes = buffers_[r.buffer].bytes;
        // A prefetched buffer occupies its bytes from the moment the copy is issued.
        const Position begin = r.issue < 0 ? r.begin : r.issue;
        change[r.permanent ? 0 : begin] += bytes;
        if (!r.permanent) change[std::min(r.release, n)] -= bytes;
    }
    // Few residencies per buffer: a linear look is faster than an index.
    auto find_residency = [&](BufferId buffer, Position p, bool begins) -> const Residency* {
        for (int32_t i = first[buffer]; i < first[buffer + 1]; ++i) {
            const Residency& r = layout.residencies[i];
            if (begins ? r.begin == p : r.end == p + 1) return &r;
        }
        return nullptr;
    };
    std::vector<BufferId> granted;  // buffers of this op that share bytes already: each may do so once
    for (Position p = 0; p < n; ++p) {
        const Op& op = ops_[layout.ops[p]];
        granted.clear();
        for (const OverlayRule& rule : op.overlays) {
            // Both ends must meet at this op: `out` begins here, `over` ends here, and no copy needs the old bytes.
            if (!(rule.kind & overlays)) continue;
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
        const Position release = op.comm ? std::min(layout.comm_release[p], n) : p + 1;
        change[p] += op.workspace_bytes;
        change[release] -= op.workspace_bytes;
    }
    std::partial_sum(change.begin(), change.end(), change.begin());
    change.resize(static_cast<size_t>(n));
    return change;
}

Bytes LayoutGraph::peak_live_bytes(int overlays, const Layout& layout) const {
    const std::vector<Bytes> profile = live_profile(overlays, layout);
    return profile.empty() ? 0 : *std::max_element(profile.begin(), profile.end());
}

// Simulates four streams: compute and comm run their ops in order, d2h and h2d one copy at a time.  A comm op starts
// when the ops before it are done; only ops that touch its results or its bytes wait for it.
Seconds LayoutGraph::estimate_seconds(const Layout& layout) const {
    const auto& residencies = layout.residencies;
    const auto n = static_cast<Position>(layout.ops.size());
    // Copies in the order of their streams: within one position by first use, then by buffer.
    std::vector<const Residency*> prefetches, offloads;
    for (const Residency& r : residencies) {
        if (r.issue >= 0) prefetches.push_back(&r);
        if (r.offloads) offloads.push_back(&r);
    }
    prefetches = by_position(prefetches, n, [](const Residency* r) { return r->begin; });
    prefetches = by_position(prefetches, n, [](const Residency* r) { return r->issue; });
    offloads = by_position(offloads, n, [](const Residency* r) { return r->end; });
    // Per position: the end of the prefetches that its op waits for, and of the offloads whose bytes are reused there.
    std::vector<Seconds> fetched_at(static_cast<size_t>(n) + 1, 0), freed_at(static_cast<size_t>(n) + 1, 0);
    std::vector<Seconds> on_host_at(prefetches.empty() ? 0 : buffers_.size(), 0);
    auto prefetch = prefetches.begin();
    auto offload = offloads.begin();
    std::vector<Seconds> written_at(buffers_.size(), 0);  // by comm ops
    Seconds compute = 0, d2h = 0, h2d = 0, comm = 0;      // when each stream is free
    for (Position p = 0; p < n; ++p) {
        const Op& op = ops_[layout.ops[p]];
        // The op waits for bytes that an offload still reads, then issues prefetches, then waits for its own.
        compute = std::max(compute, freed_at[p]);
        for (; prefetch != prefetches.end() && (*prefetch)->issue == p; ++prefetch) {
            const BufferId b = (*prefetch)->buffer;
            h2d = std::max({h2d, compute, on_host_at[b]}) + buffers_[b].prefetch_seconds;
            fetched_at[(*prefetch)->begin] = std::max(fetched_at[(*prefetch)->begin], h2d);
        }
        if (op.comm) {
            comm = std::max({comm, compute, fetched_at[p]}) + op.seconds;
            for (const auto* list : {&op.updates, &op.writes})
                for (const BufferId b : *list) written_at[b] = comm;
        } else {
            if (comm > compute)
                for (const auto* list : {&op.reads, &op.updates, &op.writes})
                    for (const BufferId b : *list) compute = std::max(compute, written_at[b]);
            compute = std::max(compute, fetched_at[p]) + op.seconds;
        }
        for (; offload != offloads.end() && (*offload)->end == p + 1; ++offload) {
            const BufferId b = (*offload)->buffer;
            d2h = std::max({d2h, compute, written_at[b]}) + buffers_[b].offload_seconds;
            if (!on_host_at.empty()) on_host_at[b] = d2h;
            Seconds& freed = freed_at[std::min((*offload)->release, n)];
            freed = std::max(freed, d2h);
        }
    }
    return std::max({compute, d2h, h2d, comm});
}

}  // namespace layermem::planning::liveness
