#include "planning/liveness/lower_set_facts.h"

#include <algorithm>

namespace layermem::planning {

namespace {
constexpr size_t kNear = 16;  // nodes up to each last one of a set whose steps are looked at
constexpr size_t kWaves = 6;  // of these steps, so many are remembered
}

SetFacts::SetFacts(const StepGraph& graph, const LowerSets& sets)
    : graph_(graph),
      sets_(sets),
      values_(static_cast<int>(graph.values.size())),
      nodes_(graph.node_count()),
      item_words_(std::max(1, (graph.item_count() + 63) / 64)) {
    read_bytes_.assign(nodes_, 0);
    for (const ValueInfo& x : graph.values) {
        producer_.push_back(x.producer);
        last_reader_.push_back(x.readers.empty() ? x.producer : x.readers.back());
        if (x.producer < 0 && x.used()) inputs_ += x.bytes;
        if (x.producer >= 0 && !x.back_owners.empty()) read_bytes_[x.producer] += x.bytes;
    }
    for (int item = 0; item < graph.item_count(); ++item) bytes_.push_back(graph.item_bytes(item));
    flatten();
    held_.assign(static_cast<size_t>(sets.size()) * item_words_, 0);
    stays_.assign(held_.size(), 0);
    facts_.resize(sets.size());
    for (int set = 0; set < sets.size(); ++set) describe(set, facts_[set]);
}

void SetFacts::flatten() {
    std::vector<size_t> marks;  // per op: touch, middle, write, end; then overlay, end
    std::vector<size_t> overlay_marks;
    auto put = [&](const std::vector<int>& list, int shift) {
        for (int id : list)
            items_.push_back(id + shift);
    };
    auto end_op = [&](const std::vector<int>& read, int read_shift, const std::vector<int>& more, int more_shift,
                      const std::vector<int>& written, int written_shift) {
        marks.push_back(items_.size());
        put(read, read_shift);
        marks.push_back(items_.size());
        put(more, more_shift);
        put(written, written_shift);
        std::sort(items_.begin() + static_cast<long>(marks.back()), items_.end());
        items_.erase(std::unique(items_.begin() + static_cast<long>(marks.back()), items_.end()), items_.end());
        marks.push_back(items_.size());
        put(written, written_shift);
        marks.push_back(items_.size());
        overlay_marks.push_back(overlays_.size());
    };
    for (const NodeInfo& node : graph_.nodes) {
        end_op(node.reads, 0, {}, 0, node.writes, 0);
        overlays_.insert(overlays_.end(), node.overlays.begin(), node.overlays.end());
    }
    for (const StepInfo& step : graph_.steps) {
        end_op(step.values, 0, step.reads, values_, step.writes, values_);
        for (const auto& [written, read] : step.over_values) overlays_.push_back({written + values_, read});
        for (const auto& [written, read] : step.over_grads) overlays_.push_back({written + values_, read + values_});
    }
    overlay_marks.push_back(overlays_.size());
    for (size_t op = 0; 4 * op < marks.size(); ++op) {
        const int* base = items_.data();
        const size_t* mark = &marks[4 * op];
        const Overlay* overlay = overlays_.data();
        const Bytes workspace = op < graph_.nodes.size() ? graph_.nodes[op].workspace
                                                         : graph_.steps[op - graph_.nodes.size()].workspace;
        ops_.push_back({base + mark[0], base + mark[1], base + mark[2], base + mark[2], base + mark[3],
                        overlay + overlay_marks[op], overlay + overlay_marks[op + 1], workspace});
    }
}

// Bytes of one op with all it touches, for the op where that is most (those with overlays aside).
Bytes SetFacts::widest_op() const {
    Bytes widest = 0;
    for (const FlatOp& op : ops_) {
        if (op.overlay != op.overlay_end) continue;
        Bytes sum = op.workspace;
        for (const int* item = op.touch; item != op.touch_end; ++item) sum += bytes_[*item];
        widest = std::max(widest, sum);
    }
    return widest;
}

bool SetFacts::any_in(const std::vector<Node>& nodes, int set) const {
    return std::any_of(nodes.begin(), nodes.end(), [&](Node v) { return sets_.has(set, v); });
}

bool SetFacts::any_out(const std::vector<Node>& nodes, int set) const {
    return std::any_of(nodes.begin(), nodes.end(), [&](Node v) { return !sets_.has(set, v); });
}

// Is a value of the set kept when the set is done?
bool SetFacts::cached(Value id, int set) const {
    const ValueInfo& x = graph_.values[id];
    if (x.kept || any_out(x.readers, set) || any_out(x.back_owners, set)) return true;
    if (x.inner || !x.readers.empty() || x.back_owners.empty()) return false;
    return any_out(graph_.nodes[x.producer].after, set);  // a stash stays with the output it belongs to
}

bool SetFacts::wanted_inside(Value id, int set) const {
    const ValueInfo& x = graph_.values[id];
    if (x.kept && x.producer >= 0 && sets_.has(set, x.producer)) return true;  // its replay reads it
    return any_in(x.readers, set) || any_in(x.back_owners, set);
}

void SetFacts::describe(int set, Facts& facts) {
    const std::vector<Node> members = sets_.members(set);
    for (Node v : members) {
        facts.time += graph_.nodes[v].ticks;
        facts.bytes += graph_.node_bytes(v);
        facts.read_bytes += read_bytes_[v];
        const auto& writes = graph_.nodes[v].writes;
        if (std::any_of(writes.begin(), writes.end(), [&](Value x) { return !graph_.values[x].back_owners.empty(); }))
            facts.read_time += graph_.nodes[v].replay_ticks;
        if (!any_out(graph_.nodes[v].after, set)) continue;
        facts.boundary.push_back(v);
        facts.boundary_time += graph_.nodes[v].ticks;
    }
    std::vector<char> outside_read(nodes_, 0);
    for (Node w = 0; w < nodes_; ++w) {
        if (sets_.has(set, w) || !any_in(graph_.nodes[w].before, set)) continue;
        facts.outside += graph_.node_bytes(w);
        for (Node u : graph_.nodes[w].before) outside_read[u] = !sets_.has(set, u);
    }
    for (Node u = 0; u < nodes_; ++u)
        if (outside_read[u]) facts.outside += graph_.node_bytes(u);
    describe_flow(set, facts);
    describe_replays(set, members, facts);
    describe_witness(set, members, facts);
}

void SetFacts::describe_flow(int set, Facts& facts) {
    for (Value id = 0; id < values_; ++id) {
        const ValueInfo& x = graph_.values[id];
        if (x.producer >= 0 && !sets_.has(set, x.producer)) {
            if (!any_in(x.back_owners, set)) continue;
            facts.carried += x.bytes;
            set_bit(stays_, set, id);
            continue;
        }
        const bool held = x.producer < 0 ? x.used() : cached(id, set);
        if (held) set_bit(held_, set, id);
        if (held && x.producer >= 0 && x.bytes > 0) {
            if (x.kept) facts.fixed_bytes += x.bytes;
            else facts.held.push_back({x.producer, x.bytes});
        }
        const bool known = x.producer < 0 ? x.used() : x.kept || any_out(x.readers, set) || any_out(x.back_owners, set);
        if (!known || wanted_inside(id, set)) {
            set_bit(stays_, set, id);
        } else {
            facts.dying.push_back(id);
            facts.dying_bytes += x.bytes;
        }
    }
    for (Grad id = 0; id < static_cast<Grad>(graph_.grads.size()); ++id) {
        const GradInfo& g = graph_.grads[id];
        const bool stays = g.final || any_in(g.touchers, set), held = any_out(g.writers, set);
        if (stays) set_bit(stays_, set, values_ + id);
        if (held) set_bit(held_, set, values_ + id);
        if (stays && held) facts.carried += g.bytes;
    }
}

void SetFacts::describe_replays(int set, const std::vector<Node>& members, Facts& facts) const {
    facts.must_replay.assign(sets_.words(), 0);
    for (Node v : members) {
        const auto& writes = graph_.nodes[v].writes;
        const bool must = std::any_of(writes.begin(), writes.end(), [&](Value x) {
            return !graph_.values[x].back_owners.empty() && !held(set, x);
        });
        if (!must) continue;
        facts.must_replay[v >> 6] |= uint64_t{1} << (v & 63);
        facts.must_time += graph_.nodes[v].replay_ticks;
    }
}

// What a step of the set reads must be there when it runs, and so must be, unless it is kept, all it takes to rebuild
// that.  Of those, what this or a later step reads has not had its last read yet: it is resident, and so is what was
// carried in and is still to be touched.
void SetFacts::describe_witness(int set, const std::vector<Node>& members, Facts& facts) const {
    std::vector<Step> last_touch(bytes_.size(), -1);
    std::vector<Step> steps;
    for (Node v : members) steps.insert(steps.end(), graph_.nodes[v].steps.begin(), graph_.nodes[v].steps.end());
    std::sort(steps.begin(), steps.end());
    for (Step s : steps)
        for (const int* item = ops_[nodes_ + s].touch; item != ops_[nodes_ + s].touch_end; ++item) last_touch[*item] = s;
    for (Step s : first_steps(set, members)) {
        Witness witness{graph_.steps[s].owner, std::vector<uint64_t>(sets_.words(), 0), 0, 0};
        for (Node v : resident_at(s, set, members, last_touch)) {
            witness.nodes[v >> 6] |= uint64_t{1} << (v & 63);
            witness.node_bytes += read_bytes_[v];
        }
        witness.beside = carried_past(s, set, last_touch) + own_bytes(s, set);
        facts.witnesses.push_back(std::move(witness));
    }
    std::sort(facts.witnesses.begin(), facts.witnesses.end(), [](const Witness& a, const Witness& b) {
        return a.node_bytes + a.beside > b.node_bytes + b.beside;
    });
}

// Steps that begin a wave of replays, each for the nodes that no step before it wanted, the largest waves first.  Only
// those of nodes close to the end of the set: a segment that ends here begins its way back with some of them.
std::vector<Step> SetFacts::first_steps(int set, const std::vector<Node>& members) const {
    std::vector<char> close(nodes_, 0), rebuilt(nodes_, 0);
    std::vector<Step> steps;
    for (auto v = members.rbegin(); v != members.rend(); ++v) {
        if (any_in(graph_.nodes[*v].after, set)) continue;
        std::vector<Node> near{*v};
        for (size_t i = 0; i < near.size() && near.size() < kNear; ++i) {
            const auto& before = graph_.nodes[near[i]].before;
            near.insert(near.end(), before.begin(), before.end());
        }
        for (Node u : near) {
            if (!close[u]) steps.insert(steps.end(), graph_.nodes[u].steps.begin(), graph_.nodes[u].steps.end());
            close[u] = 1;
        }
    }
    std::sort(steps.begin(), steps.end());
    std::vector<std::pair<Bytes, Step>> waves;
    for (Step s : steps) waves.push_back({-wave(graph_.steps[s].values, set, rebuilt) - own_bytes(s, set), s});
    std::stable_sort(waves.begin(), waves.end());
    if (waves.size() > kWaves) waves.resize(kWaves);
    std::vector<Step> out;
    for (const auto& [bytes, s] : waves) out.push_back(s);
    return out;
}

// Bytes of the nodes that must run again for these values and have not been `rebuilt` before; they are then.
Bytes SetFacts::wave(std::vector<Value> wanted, int set, std::vector<char>& rebuilt) const {
    Bytes sum = 0;
    while (!wanted.empty()) {
        const Value x = wanted.back();
        const Node v = producer_[x];
        wanted.pop_back();
        if (v < 0 || rebuilt[v] || !sets_.has(set, v) || held(set, x)) continue;
        rebuilt[v] = 1;
        sum += read_bytes_[v];
        wanted.insert(wanted.end(), graph_.nodes[v].reads.begin(), graph_.nodes[v].reads.end());
    }
    return sum;
}

// Gradients that the step touches and no step outside the set has written, without those that may land on something.
Bytes SetFacts::own_bytes(Step s, int set) const {
    const FlatOp& op = ops_[nodes_ + s];
    Bytes sum = op.workspace;
    for (const int* item = op.middle; item != op.touch_end; ++item) {
        const bool lands = std::any_of(op.overlay, op.overlay_end, [&](const Overlay& o) { return o.first == *item; });
        if (!held(set, *item) && !lands) sum += bytes_[*item];
    }
    return sum;
}

Bytes SetFacts::carried_past(Step s, int set, const std::vector<Step>& last_touch) const {
    Bytes sum = 0;
    for (size_t item = 0; item < bytes_.size(); ++item) {
        const bool is_value = static_cast<int>(item) < values_;
        if (is_value) {
            const Node v = producer_[item];
            if (last_touch[item] >= s && v >= 0 && !sets_.has(set, v)) sum += bytes_[item];
        } else if (held(set, static_cast<int>(item))) {
            const bool final = graph_.grads[item - values_].final;
            if (final || last_touch[item] >= s) sum += bytes_[item];
        }
    }
    return sum;
}

// Nodes all of whose values that any step reads are resident when step `s` of the set runs.
std::vector<Node> SetFacts::resident_at(Step s, int set, const std::vector<Node>& members,
                                        const std::vector<Step>& last_read) const {
    std::vector<char> wanted(graph_.values.size(), set == sets_.size() - 1);  // the last segment is not rebuilt
    for (Value x : graph_.steps[s].values) wanted[x] = 1;
    std::vector<Node> out;
    for (auto v = members.rbegin(); v != members.rend(); ++v) {
        bool replay = false, all = read_bytes_[*v] > 0;
        for (Value x : graph_.nodes[*v].writes) {
            replay |= wanted[x] && !held(set, x);
            if (!graph_.values[x].back_owners.empty()) all &= (wanted[x] || held(set, x)) && last_read[x] >= s;
        }
        if (replay)
            for (Value x : graph_.nodes[*v].reads) wanted[x] = 1;
        if (all) out.push_back(*v);
    }
    return out;
}

}  // namespace layermem::planning
