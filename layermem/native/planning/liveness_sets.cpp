// What the cost of a pair takes from each of its two sets alone.
#include "planning/liveness.h"

#include <algorithm>

namespace layermem {

SegmentCosts::SegmentCosts(const StepGraph& graph, const LowerSets& sets, Model model)
    : graph_(graph), sets_(sets), model_(model) {
    const size_t values = graph.values.size(), items = values + graph.grads.size();
    in_segment_.assign(graph.nodes.size(), 0);
    cached_.assign(values, 0);
    want_.assign(values, kNever);
    last_use_.assign(items, -1);
    born_.assign(items, 0);
    readable_.assign(graph.nodes.size(), 0);
    for (const ValueInfo& x : graph.values) {
        if (x.producer < 0)
            inputs_ += model == Model::live && x.used() ? x.bytes : 0;
        else if (!x.back_owners.empty())
            readable_[x.producer] += x.bytes;
    }
    info_.reserve(sets.size());
    for (int set = 0; set < sets.size(); ++set) info_.push_back(describe(set));
}

bool SegmentCosts::any_in(const std::vector<Node>& nodes, int set) const {
    return std::any_of(nodes.begin(), nodes.end(), [&](Node v) { return sets_.has(set, v); });
}

bool SegmentCosts::any_out(const std::vector<Node>& nodes, int set) const {
    return std::any_of(nodes.begin(), nodes.end(), [&](Node v) { return !sets_.has(set, v); });
}

// Kept when the set that its producer joins with is done.
bool SegmentCosts::cached(Value id, int upper) const {
    const ValueInfo& x = graph_.values[id];
    if (x.kept || any_out(x.readers, upper)) return true;
    if (!x.readers.empty() || x.back_owners.empty()) return false;
    return any_out(graph_.nodes[x.producer].after, upper);  // a stash stays with the output it belongs to
}

bool SegmentCosts::wanted_below(Value id, int lower) const {
    const ValueInfo& x = graph_.values[id];
    if (x.kept && x.producer >= 0 && sets_.has(lower, x.producer)) return true;  // its replay reads it
    return any_in(x.readers, lower) || any_in(x.back_owners, lower);
}

SegmentCosts::SetInfo SegmentCosts::describe(int set) const {
    SetInfo info;
    for (Node v : sets_.members(set)) {
        info.time += graph_.nodes[v].ticks;
        info.bytes += graph_.node_bytes(v);
        info.readable += readable_[v];
        if (any_out(graph_.nodes[v].after, set)) {
            info.boundary_nodes.push_back(v);
            info.boundary += graph_.node_bytes(v);
        }
    }
    if (model_ == Model::paper) {
        describe_paper(set, info);
    } else {
        describe_live(set, info);
        describe_bound(set, info);
    }
    return info;
}

void SegmentCosts::describe_paper(int set, SetInfo& info) const {
    std::vector<char> outside_read(graph_.nodes.size(), 0);
    for (Node w = 0; w < graph_.node_count(); ++w) {
        const auto& before = graph_.nodes[w].before;
        if (sets_.has(set, w) || !any_in(before, set)) continue;
        info.carried += graph_.node_bytes(w);  // its gradient flows into the set
        for (Node u : before) outside_read[u] = !sets_.has(set, u);
    }
    for (Node u = 0; u < graph_.node_count(); ++u)
        if (outside_read[u]) info.carried += graph_.node_bytes(u);
}

void SegmentCosts::describe_live(int set, SetInfo& info) const {
    for (Value id = 0; id < static_cast<Value>(graph_.values.size()); ++id) {
        const ValueInfo& x = graph_.values[id];
        const bool inside = x.producer < 0 || sets_.has(set, x.producer);
        if (!inside) {
            if (any_in(x.back_owners, set)) info.carried += x.bytes;
        } else if (x.producer < 0 || x.kept || any_out(x.readers, set)) {
            if (!x.used() || wanted_below(id, set)) continue;
            info.dying.push_back(id);
            info.dying_bytes += x.bytes;
        }
    }
    for (const GradInfo& g : graph_.grads)
        if (any_out(g.writers, set) && (g.final || any_in(g.touchers, set))) info.carried += g.bytes;
}

// What the first step of the set reads must be there, and so must be, unless it is kept, all it takes to rebuild it.
// Of that, what some step of the segment reads has not had its last read yet.  Nodes below the segment do not count;
// that is left to peak_bound().
void SegmentCosts::describe_bound(int set, SetInfo& info) const {
    Step first = graph_.step_count();
    for (Node v : sets_.members(set))
        if (!graph_.nodes[v].steps.empty()) first = std::min(first, graph_.nodes[v].steps.front());
    if (first == graph_.step_count()) return;
    info.first_owner = graph_.steps[first].owner;
    info.at_first.assign(sets_.words(), 0);
    const bool last = set == sets_.size() - 1;
    std::vector<char> wanted(graph_.values.size(), last);
    for (Value x : graph_.steps[first].values) wanted[x] = 1;
    const std::vector<Node> members = sets_.members(set);
    for (auto v = members.rbegin(); v != members.rend(); ++v) {
        bool replay = false, count = true;
        for (Value id : graph_.nodes[*v].writes) {
            const bool is_cached = cached(id, set);
            replay |= wanted[id] && !is_cached;
            const auto& owners = graph_.values[id].back_owners;
            if (!owners.empty()) count &= (wanted[id] || is_cached) && any_in(owners, set);
        }
        if (replay)
            for (Value id : graph_.nodes[*v].reads) wanted[id] = 1;
        if (!count) continue;
        info.at_first[*v >> 6] |= uint64_t{1} << (*v & 63);
        info.resident += readable_[*v];
    }
}

}  // namespace layermem
