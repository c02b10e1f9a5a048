#include "planning/liveness/layout.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace layermem::layout {

Id Graph::add_buffer(Buffer buffer) {
    buffers_.push_back(std::move(buffer));
    return static_cast<Id>(buffers_.size()) - 1;
}

Id Graph::add_op(Op op) {
    const auto known = static_cast<Id>(buffers_.size());
    for (const auto* list : {&op.reads, &op.updates, &op.writes})
        for (Id b : *list)
            if (b < 0 || b >= known) throw std::invalid_argument("'" + op.name + "' touches a buffer that is not there");
    if (op.replay >= static_cast<Id>(ops_.size())) throw std::invalid_argument("add the replay of '" + op.name + "' first");
    ops_.push_back(std::move(op));
    return static_cast<Id>(ops_.size()) - 1;
}

Layout Graph::lay_out(const Plan& plan) const {
    Layout laid;
    std::vector<char> seen(ops_.size(), 0);
    for (Id id : plan.order) {
        if (id < 0 || id >= static_cast<Id>(ops_.size())) throw std::invalid_argument("the plan runs an op that is not there");
        if (seen[id] && ops_[id].replay < 0)
            throw std::invalid_argument("the plan runs '" + ops_[id].name + "' twice, but it cannot be repeated");
        laid.ops.push_back(seen[id] ? ops_[id].replay : id);
        seen[id] = 1;
    }
    std::vector<std::vector<Use>> uses(buffers_.size());
    for (Position p = 0; p < static_cast<Position>(laid.ops.size()); ++p) {
        const Op& op = ops_[laid.ops[p]];
        for (Id b : op.reads) uses[b].push_back({p, true, false});
        for (Id b : op.updates) uses[b].push_back({p, true, true});
        for (Id b : op.writes) uses[b].push_back({p, false, true});
    }
    std::vector<std::vector<Gap>> fates(buffers_.size());
    for (const Gap& gap : plan.fates) fates.at(gap.buffer).push_back(gap);
    for (Id b = 0; b < static_cast<Id>(buffers_.size()); ++b)
        if (!uses[b].empty()) stays_of(b, uses[b], fates[b], laid);
    time_copies(plan, laid);
    return laid;
}

void Graph::stays_of(Id b, const std::vector<Use>& uses, const std::vector<Gap>& fates, Layout& laid) const {
    auto fate_of = [&](int32_t use) -> const Gap* {
        auto it = std::find_if(fates.begin(), fates.end(), [&](const Gap& g) { return g.use == use; });
        return it == fates.end() ? nullptr : &*it;
    };
    auto name_at = [&](const Use& use) { return ops_[laid.ops[use.position]].name; };
    const Buffer& buffer = buffers_[b];
    const Gap* last = fate_of(-1);
    const bool at_home = buffer.persistent ? !last || last->fate != Fate::offload : last && last->fate == Fate::keep;
    if (at_home) {
        laid.stays.push_back({b, uses.front().position, uses.back().position, uses.back().position + 1, -1, false, true});
        return;
    }
    bool clean = buffer.persistent;  // a buffer whose home is the host starts the step with its bytes there
    bool here = false;
    Stay stay{};
    for (size_t number = 0; number < uses.size(); ++number) {
        const Use& use = uses[number];
        if (!here) {
            if (use.reads && !clean)
                throw std::invalid_argument("the plan reads '" + buffer.name + "' at " + name_at(use) +
                                            " before anything made it");
            stay = {b, use.position, use.position, use.position + 1, use.reads ? use.position : -1, false, false};
            here = true;
        }
        stay.last = use.position;
        stay.release = use.position + 1;
        clean = clean && !use.writes;
        if (number + 1 == uses.size()) {
            stay.offloads = buffer.persistent && !clean;
            laid.stays.push_back(stay);
            return;
        }
        const Use& next = uses[number + 1];
        const Gap* gap = fate_of(static_cast<int32_t>(number));
        if (gap && gap->fate == Fate::offload && next.reads) {
            stay.offloads = !clean;
            clean = true;
            laid.stays.push_back(stay);
            here = false;
        } else if (!next.reads) {
            laid.stays.push_back(stay);
            here = false;
        } else if (gap && gap->fate == Fate::drop) {
            throw std::invalid_argument("the plan drops '" + buffer.name + "' before " + name_at(next) + " reads it");
        }
    }
}

// Moves releases later and prefetches earlier, in the modelled time of the compute stream: each offload as early and
// each prefetch as late as its queue permits.
void Graph::time_copies(const Plan& plan, Layout& laid) const {
    std::vector<Stay*> out, in;
    std::vector<std::vector<Position>> left(buffers_.size());  // a prefetch cannot start before the stay before it ends
    for (Stay& stay : laid.stays) {
        if (stay.offloads) out.push_back(&stay);
        if (stay.issue >= 0) in.push_back(&stay);
        left[stay.buffer].push_back(stay.last + 1);
    }
    if (out.empty() && in.empty()) return;
    std::vector<double> starts(laid.ops.size() + 1, 0.0);
    for (size_t p = 0; p < laid.ops.size(); ++p) starts[p + 1] = starts[p] + ops_[laid.ops[p]].seconds;
    const auto begin = starts.begin(), end = starts.end() - 1;  // the last one is the end of the step
    std::stable_sort(out.begin(), out.end(), [](const Stay* a, const Stay* b) { return a->last < b->last; });
    double free = 0;
    for (Stay* stay : out) {
        const double duration = buffers_[stay->buffer].offload;
        const double start = std::max(free, starts[stay->last + 1]);
        free = start + duration;
        const double done = start + duration * std::min(plan.ahead, 1.0);
        const auto position = static_cast<Position>(std::lower_bound(begin, end, done) - begin);
        stay->release = plan.ahead > 0 ? std::max(stay->last + 1, position) : stay->last + 1;
    }
    std::reverse(in.begin(), in.end());  // from the last one backwards
    std::stable_sort(in.begin(), in.end(), [](const Stay* a, const Stay* b) { return a->first > b->first; });
    free = starts.back();
    for (Stay* stay : in) {
        const double duration = buffers_[stay->buffer].prefetch;
        free = std::min(free, starts[stay->first]) - duration;
        const double start = plan.ahead >= 1 ? free : starts[stay->first] - duration * plan.ahead;
        auto issue = static_cast<Position>(std::upper_bound(begin, end, start) - begin) - 1;
        issue = std::max(issue, 0);
        for (Position p : left[stay->buffer])
            if (p <= stay->first) issue = std::max(issue, p);
        stay->issue = std::min(stay->first, issue);
    }
}

Bytes Graph::live(const Plan& plan, const Layout& laid) const {
    const auto n = static_cast<Position>(laid.ops.size());
    std::vector<Bytes> change(static_cast<size_t>(n) + 2, 0);
    std::vector<std::vector<const Stay*>> of(buffers_.size());
    for (const Stay& stay : laid.stays) {
        const Bytes bytes = buffers_[stay.buffer].bytes;
        of[stay.buffer].push_back(&stay);
        change[stay.whole ? 0 : stay.issue < 0 ? stay.first : stay.issue] += bytes;
        if (!stay.whole) change[std::min(stay.release, n)] -= bytes;
    }
    auto find = [&](Id buffer, Position p, bool begins) -> const Stay* {
        for (const Stay* stay : of[buffer])
            if ((begins ? stay->first : stay->last) == p) return stay;
        return nullptr;
    };
    std::vector<Id> taken;
    for (Position p = 0; p < n; ++p) {
        const Op& op = ops_[laid.ops[p]];
        taken.clear();
        for (const Overlay& overlay : op.overlays) {
            if (!(overlay.kind & plan.overlays)) continue;
            const Stay *out = find(overlay.out, p, true), *over = find(overlay.over, p, false);
            if (!out || !over || !may_overlay(*out, *over)) continue;
            if (std::any_of(taken.begin(), taken.end(), [&](Id b) { return b == overlay.out || b == overlay.over; }))
                continue;
            taken.push_back(overlay.out);
            taken.push_back(overlay.over);
            change[out->whole ? 0 : p] -= buffers_[overlay.out].bytes;
            if (!out->whole) change[p + 1] += buffers_[overlay.out].bytes;
        }
        change[p] += op.workspace;
        change[p + 1] -= op.workspace;
    }
    Bytes now = 0, most = 0;
    for (Bytes delta : change) most = std::max(most, now += delta);
    return most;
}

double Graph::seconds(const Layout& laid) const {
    const size_t n = laid.ops.size() + 1;
    std::vector<std::vector<int>> arriving(n), waited(n), leaving(n), released(n);
    for (int i = 0; i < static_cast<int>(laid.stays.size()); ++i) {
        const Stay& stay = laid.stays[i];
        if (stay.issue >= 0) {
            arriving[stay.issue].push_back(i);
            waited[stay.first].push_back(i);
        }
        if (stay.offloads) {
            leaving[stay.last].push_back(i);
            released[std::min<size_t>(stay.release, n - 1)].push_back(i);
        }
    }
    for (auto& list : arriving)
        std::stable_sort(list.begin(), list.end(), [&](int a, int b) { return laid.stays[a].first < laid.stays[b].first; });
    std::vector<double> gone(laid.stays.size(), 0), back(laid.stays.size(), 0), on_host(buffers_.size(), 0);
    double now = 0, d2h = 0, h2d = 0;
    for (size_t p = 0; p + 1 < n; ++p) {
        for (int i : released[p]) now = std::max(now, gone[i]);
        for (int i : arriving[p]) {
            const Id b = laid.stays[i].buffer;
            back[i] = h2d = std::max({h2d, now, on_host[b]}) + buffers_[b].prefetch;
        }
        for (int i : waited[p]) now = std::max(now, back[i]);
        now += ops_[laid.ops[p]].seconds;
        for (int i : leaving[p]) {
            const Id b = laid.stays[i].buffer;
            gone[i] = on_host[b] = d2h = std::max(d2h, now) + buffers_[b].offload;
        }
    }
    return std::max({now, d2h, h2d});
}

}  // namespace layermem::layout
