// Facts of each lower set, computed once: a planner evaluates pairs of sets, of which there are many more than sets.
//
// A set is the upper end of some segments and the lower end of others, and most facts belong to one of these roles.  As
// the upper end it determines which values are kept when the segment is done; as the lower end, which outlive it.
//
//      L_{i-1} (lower end)            L_i (upper end)
//      ------------|=================|--------------        values of the segment read right of L_i are kept;
//       outlives: read left of it     kept: read right       those read left of L_{i-1} stay after its backward
#include "planning/liveness/lower_set_facts.h"

#include <algorithm>

namespace layermem::planning::liveness {
namespace {

constexpr size_t kMaxNearbyNodes = 64;  // nodes before each last node of a set whose steps may become witnesses
constexpr size_t kMaxWitnesses = 6;     // per set

}  // namespace

LowerSetFacts::LowerSetFacts(const StepGraph& graph, const LowerSets& sets)
    : graph_(graph),
      sets_(sets),
      values_(static_cast<int>(graph.values.size())),
      nodes_(graph.node_count()),
      item_words_(std::max(1, (graph.item_count() + 63) / 64)) {
    // Per-value and per-node tables first: the facts below read them instead of the graph.
    read_bytes_.assign(nodes_, 0);
    for (const ValueInfo& x : graph.values) {
        producer_.push_back(x.producer);
        last_reader_.push_back(x.readers.empty() ? x.producer : x.readers.back());
        if (x.producer < 0 && x.used()) inputs_ += x.bytes;
        if (x.producer >= 0 && !x.backward_owners.empty()) read_bytes_[x.producer] += x.bytes;
    }
    sum_recompute_quanta();
    for (Item item = 0; item < graph.item_count(); ++item) bytes_.push_back(graph.item_bytes(item));
    flatten_ops();
    kept_.assign(static_cast<size_t>(sets.size()) * item_words_, 0);
    outlives_.assign(kept_.size(), 0);
    facts_.resize(sets.size());
    for (SetIndex set = 0; set < sets.size(); ++set) describe(set, facts_[set]);
}

// Sums times byte by byte of a bit set instead of node by node.
void LowerSetFacts::sum_recompute_quanta() {
    constexpr int kBits = 8;
    const size_t bytes = static_cast<size_t>(sets_.words()) * (64 / kBits);
    recompute_quanta_.assign(bytes << kBits, 0);
    for (Node v = 0; v < nodes_; ++v) {
        Quanta* sums = &recompute_quanta_[static_cast<size_t>(v / kBits) << kBits];
        for (size_t subset = 1; subset < size_t{1} << kBits; ++subset)
            if ((subset >> (v % kBits)) & 1) sums[subset] += graph_.nodes[v].recompute_quanta;
    }
}

// Copies the lists of all ops into one array, so that passes over ops read memory in order.  Offsets are stored first
// and turned into pointers at the end, when the arrays do not grow any more.
void LowerSetFacts::flatten_ops() {
    std::vector<size_t> marks;  // four per op: touch, middle, write, end
    std::vector<size_t> overlay_marks;
    auto append = [&](const std::vector<int32_t>& ids, int shift) {
        for (int32_t id : ids) items_.push_back(id + shift);
    };
    auto append_op = [&](const std::vector<Value>& read, const std::vector<Grad>& read_grads,
                         const std::vector<int32_t>& written, int written_shift) {
        marks.push_back(items_.size());
        append(read, 0);
        marks.push_back(items_.size());
        append(read_grads, values_);
        append(written, written_shift);
        // A gradient may be both read and written: touch lists it once, so that its bytes count once.
        const auto middle = items_.begin() + static_cast<long>(marks.back());
        std::sort(middle, items_.end());
        items_.erase(std::unique(middle, items_.end()), items_.end());
        marks.push_back(items_.size());
        append(written, written_shift);
        marks.push_back(items_.size());
        overlay_marks.push_back(overlays_.size());
    };
    for (const NodeInfo& node : graph_.nodes) {
        append_op(node.reads, {}, node.writes, 0);
        overlays_.insert(overlays_.end(), node.overlays.begin(), node.overlays.end());
    }
    for (const StepInfo& step : graph_.steps) {
        append_op(step.values, step.reads, step.writes, values_);
        for (const auto& [written, read] : step.over_values) overlays_.push_back({written + values_, read});
        for (const auto& [written, read] : step.over_grads) overlays_.push_back({written + values_, read + values_});
    }
    overlay_marks.push_back(overlays_.size());
    for (size_t op = 0; 4 * op < marks.size(); ++op) {
        const Item* items = items_.data();
        const size_t* mark = &marks[4 * op];
        const Overlay* overlay = overlays_.data();
        const Bytes workspace_bytes = op < graph_.nodes.size() ? graph_.nodes[op].workspace_bytes
                                                               : graph_.steps[op - graph_.nodes.size()].workspace_bytes;
        ops_.push_back({items + mark[0], items + mark[1], items + mark[2], items + mark[2], items + mark[3],
                        overlay + overlay_marks[op], overlay + overlay_marks[op + 1], workspace_bytes});
    }
}

// Returns the largest sum of bytes that one op touches.  Ops with overlays are left out: they may need fewer bytes.
Bytes LowerSetFacts::widest_op_bytes() const {
    Bytes widest = 0;
    for (const FlatOp& op : ops_) {
        if (op.overlay != op.overlay_end) continue;
        Bytes sum = op.workspace_bytes;
        for (const Item* item = op.touch; item != op.touch_end; ++item) sum += bytes_[*item];
        widest = std::max(widest, sum);
    }
    return widest;
}

bool LowerSetFacts::any_in(const std::vector<Node>& nodes, SetIndex set) const {
    return std::any_of(nodes.begin(), nodes.end(), [&](Node v) { return sets_.has(set, v); });
}

bool LowerSetFacts::any_out(const std::vector<Node>& nodes, SetIndex set) const {
    return std::any_of(nodes.begin(), nodes.end(), [&](Node v) { return !sets_.has(set, v); });
}

// Returns whether a value of the set is kept when the set is done: something outside reads it, or it is a stash (read
// by backward only), which stays with the outputs of its node.
bool LowerSetFacts::is_kept_value(Value id, SetIndex set) const {
    const ValueInfo& x = graph_.values[id];
    if (x.kept || any_out(x.readers, set) || any_out(x.backward_owners, set)) return true;
    if (x.inner || !x.readers.empty() || x.backward_owners.empty()) return false;
    return any_out(graph_.nodes[x.producer].successors, set);
}

// Returns whether anything in the set needs the value again; recomputations of its producer read a `kept` one.
bool LowerSetFacts::is_needed_inside(Value id, SetIndex set) const {
    const ValueInfo& x = graph_.values[id];
    if (x.kept && x.producer >= 0 && sets_.has(set, x.producer)) return true;
    return any_in(x.readers, set) || any_in(x.backward_owners, set);
}

void LowerSetFacts::describe(SetIndex set, SetFacts& facts) {
    const std::vector<Node> members = sets_.members(set);
    for (Node v : members) {
        facts.time += graph_.nodes[v].quanta;
        facts.bytes += graph_.node_bytes(v);
        facts.read_bytes += read_bytes_[v];
        facts.recomputable_time += graph_.nodes[v].recompute_quanta;
        // The boundary: members with a successor outside.
        if (!any_out(graph_.nodes[v].successors, set)) continue;
        facts.boundary.push_back(v);
        facts.boundary_time += graph_.nodes[v].quanta;
    }
    // The paper's last two terms: the nodes outside that read the set, and all that those read outside the set.
    std::vector<char> is_read_outside(nodes_, 0);
    for (Node w = 0; w < nodes_; ++w) {
        if (sets_.has(set, w) || !any_in(graph_.nodes[w].predecessors, set)) continue;
        facts.outside += graph_.node_bytes(w);
        for (Node u : graph_.nodes[w].predecessors) is_read_outside[u] = !sets_.has(set, u);
    }
    for (Node u = 0; u < nodes_; ++u)
        if (is_read_outside[u]) facts.outside += graph_.node_bytes(u);
    describe_values(set, facts);
    describe_gradients(set, facts);
    describe_recomputes(set, members, facts);
    describe_peak_witnesses(set, members, facts);
}

// Distinguishes three kinds of values: those made outside that backward in the set reads (carried in), those kept and
// still needed inside (they outlive the segment above), and those kept only for the segment above (dying).
void LowerSetFacts::describe_values(SetIndex set, SetFacts& facts) {
    for (Value id = 0; id < values_; ++id) {
        const ValueInfo& x = graph_.values[id];
        if (x.producer >= 0 && !sets_.has(set, x.producer)) {
            if (!any_in(x.backward_owners, set)) continue;
            facts.carried += x.bytes;
            set_bit(outlives_, set, id);
            continue;
        }
        const bool is_kept = x.producer < 0 ? x.used() : is_kept_value(id, set);
        if (is_kept) set_bit(kept_, set, id);
        if (is_kept && x.producer >= 0 && x.bytes > 0) {
            if (x.kept) {
                facts.fixed_bytes += x.bytes;
            } else {
                facts.kept.push_back({x.producer, x.bytes});
            }
        }
        // An input exists before the step, so it counts as used above as soon as anything uses it.
        const bool is_used_above =
            x.producer < 0 ? x.used() : x.kept || any_out(x.readers, set) || any_out(x.backward_owners, set);
        if (!is_used_above || is_needed_inside(id, set)) {
            set_bit(outlives_, set, id);
        } else {
            facts.dying.push_back(id);
            facts.dying_bytes += x.bytes;
            if (x.producer >= 0 && !x.kept && x.backward_owners.empty()) facts.releasable.push_back(id);
        }
    }
}

void LowerSetFacts::describe_gradients(SetIndex set, SetFacts& facts) {
    for (Grad id = 0; id < static_cast<Grad>(graph_.grads.size()); ++id) {
        const GradInfo& g = graph_.grads[id];
        // Carried in: written by steps of segments above, and still used by steps of the set.
        const bool is_needed = g.final || any_in(g.users, set);
        const bool is_written = any_out(g.writers, set);
        if (is_needed) set_bit(outlives_, set, values_ + id);
        if (is_written) set_bit(kept_, set, values_ + id);
        if (is_needed && is_written) facts.carried += g.bytes;
    }
}

// Values that backward of the set needs and the upper end does not keep are recomputed, and so are their missing
// inputs. A segment that ends here runs only its own nodes again: inputs of nodes below its lower end lie below it too.
void LowerSetFacts::describe_recomputes(SetIndex set, const std::vector<Node>& members, SetFacts& facts) const {
    facts.recomputed.assign(sets_.words(), 0);
    std::vector<char> is_read_again(graph_.values.size(), 0);
    for (auto v = members.rbegin(); v != members.rend(); ++v) {  // a node's readers come first
        const NodeInfo& node = graph_.nodes[*v];
        const bool runs_again = std::any_of(node.writes.begin(), node.writes.end(), [&](Value x) {
            return !is_kept(set, x) && (is_read_again[x] || !graph_.values[x].backward_owners.empty());
        });
        if (!runs_again) continue;
        facts.recomputed[*v >> 6] |= uint64_t{1} << (*v & 63);
        facts.recompute_time += node.recompute_quanta;
        for (Value x : node.reads) is_read_again[x] = 1;
    }
}

// ---- witnesses of a peak ------------------------------------------------------------------------------------------

// Values that a step of the set reads are resident when the step runs, and so were, unless kept, the inputs of their
// recomputations.  Those that this or a later step reads have not had their last read yet, so they are resident, and so
// are the carried values that are still to be touched.
void LowerSetFacts::describe_peak_witnesses(SetIndex set, const std::vector<Node>& members, SetFacts& facts) const {
    std::vector<Step> last_touch(bytes_.size(), -1);
    std::vector<Step> steps;
    for (Node v : members) steps.insert(steps.end(), graph_.nodes[v].steps.begin(), graph_.nodes[v].steps.end());
    std::sort(steps.begin(), steps.end());
    for (Step s : steps) {
        const FlatOp& op = ops_[nodes_ + s];
        for (const Item* item = op.touch; item != op.touch_end; ++item) last_touch[*item] = s;
    }
    // `nodes` lists all resident nodes of the set; a segment counts those above its lower end.
    for (Step s : choose_witness_steps(set, members)) {
        PeakWitness witness{graph_.steps[s].owner, std::vector<uint64_t>(sets_.words(), 0), 0, 0};
        for (Node v : nodes_resident_at(s, set, members, last_touch)) {
            witness.nodes[v >> 6] |= uint64_t{1} << (v & 63);
            witness.node_bytes += read_bytes_[v];
        }
        witness.beside = carried_bytes_at(s, set, last_touch) + step_bytes(s, set);
        facts.peak_witnesses.push_back(std::move(witness));
    }
    // The bound looks at the first witnesses only, so the largest come first.
    std::sort(facts.peak_witnesses.begin(), facts.peak_witnesses.end(),
              [](const auto& a, const auto& b) { return a.node_bytes + a.beside > b.node_bytes + b.beside; });
}

// Chooses steps that begin a wave of recomputations, for values that no earlier step needed; the largest waves first.
// Only steps close to the end of the set are considered: a segment that ends here begins its backward with some of
// them.
std::vector<Step> LowerSetFacts::choose_witness_steps(SetIndex set, const std::vector<Node>& members) const {
    std::vector<char> is_nearby(nodes_, 0);
    std::vector<char> recomputed(nodes_, 0);
    std::vector<Step> steps;
    for (auto v = members.rbegin(); v != members.rend(); ++v) {
        if (any_in(graph_.nodes[*v].successors, set)) continue;
        std::vector<Node> nearby{*v};  // breadth first from a last node of the set
        for (size_t i = 0; i < nearby.size() && nearby.size() < kMaxNearbyNodes; ++i) {
            const auto& predecessors = graph_.nodes[nearby[i]].predecessors;
            nearby.insert(nearby.end(), predecessors.begin(), predecessors.end());
        }
        for (Node u : nearby) {
            if (!is_nearby[u]) steps.insert(steps.end(), graph_.nodes[u].steps.begin(), graph_.nodes[u].steps.end());
            is_nearby[u] = 1;
        }
    }
    std::sort(steps.begin(), steps.end());
    // The order of steps matters: each wave marks its nodes as recomputed for those after it.
    std::vector<std::pair<Bytes, Step>> waves;  // negative bytes: the largest are sorted to the front
    for (Step s : steps) {
        const Bytes bytes = recompute_wave_bytes(graph_.steps[s].values, set, recomputed) + step_bytes(s, set);
        waves.push_back({-bytes, s});
    }
    std::stable_sort(waves.begin(), waves.end());
    if (waves.size() > kMaxWitnesses) waves.resize(kMaxWitnesses);
    std::vector<Step> out;
    out.reserve(waves.size());
    for (const auto& [bytes, s] : waves) out.push_back(s);
    return out;
}

// Returns the bytes of the nodes that must run again for these values and are not `recomputed` yet, and marks them.
Bytes LowerSetFacts::recompute_wave_bytes(std::vector<Value> needed, SetIndex set,
                                          std::vector<char>& recomputed) const {
    Bytes sum = 0;
    while (!needed.empty()) {
        const Value x = needed.back();
        const Node v = producer_[x];
        needed.pop_back();
        if (v < 0 || recomputed[v] || !sets_.has(set, v) || is_kept(set, x)) continue;
        recomputed[v] = 1;
        sum += read_bytes_[v];
        needed.insert(needed.end(), graph_.nodes[v].reads.begin(), graph_.nodes[v].reads.end());
    }
    return sum;
}

// Returns the workspace and the gradients that the step touches and no step outside the set has written, without those
// that an overlay may put on other bytes.
Bytes LowerSetFacts::step_bytes(Step s, SetIndex set) const {
    // Gradients follow `middle` in the list of a step.
    const FlatOp& op = ops_[nodes_ + s];
    Bytes sum = op.workspace_bytes;
    for (const Item* item = op.middle; item != op.touch_end; ++item) {
        auto is_written = [&](const Overlay& o) { return o.first == *item; };
        const bool may_overlay = std::any_of(op.overlay, op.overlay_end, is_written);
        if (!is_kept(set, *item) && !may_overlay) sum += bytes_[*item];
    }
    return sum;
}

// Returns the bytes from outside the set that are resident at step s: items that it or a later step touches.
Bytes LowerSetFacts::carried_bytes_at(Step s, SetIndex set, const std::vector<Step>& last_touch) const {
    Bytes sum = 0;
    for (size_t item = 0; item < bytes_.size(); ++item) {
        const bool is_value = static_cast<int>(item) < values_;
        if (is_value) {
            const Node v = producer_[item];
            if (last_touch[item] >= s && v >= 0 && !sets_.has(set, v)) sum += bytes_[item];
        } else if (is_kept(set, static_cast<Item>(item))) {
            const bool final = graph_.grads[item - values_].final;
            if (final || last_touch[item] >= s) sum += bytes_[item];
        }
    }
    return sum;
}

// Returns the nodes whose values that any step reads are all resident when step s of the set runs.  Nodes are visited
// by falling id, so that a node's readers come first: a value is needed if the step reads it, or a node that is
// recomputed for it.
std::vector<Node> LowerSetFacts::nodes_resident_at(Step s, SetIndex set, const std::vector<Node>& members,
                                                   const std::vector<Step>& last_read) const {
    const bool is_last_segment = set == sets_.size() - 1;  // nothing of it was freed
    std::vector<char> needed(graph_.values.size(), is_last_segment);
    for (Value x : graph_.steps[s].values) needed[x] = 1;
    std::vector<Node> out;
    for (auto v = members.rbegin(); v != members.rend(); ++v) {
        bool is_recomputed = false;
        bool all_resident = read_bytes_[*v] > 0;
        for (Value x : graph_.nodes[*v].writes) {
            is_recomputed |= needed[x] && !is_kept(set, x);
            if (graph_.values[x].backward_owners.empty()) continue;
            all_resident &= (needed[x] || is_kept(set, x)) && last_read[x] >= s;
        }
        if (is_recomputed)
            for (Value x : graph_.nodes[*v].reads) needed[x] = 1;
        if (all_resident) out.push_back(*v);
    }
    return out;
}

}  // namespace layermem::planning::liveness
