// Construction of a step graph.  Each addition is checked at once; finish() derives neighbours, readers and owners, and
// checks properties of the whole graph:
//
//      add_*()     ids exist, sizes and times are not negative, each value is written once and before it is read
//      finish()    each gradient is complete when it is read, wherever segments end
#include "planning/step_graph.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace layermem::planning {
namespace {

// Whole times whose sum is below the first number are used as quanta.  Others are scaled and rounded so that their sum
// is about the second: a search keeps a table with one entry per quantum.
constexpr double kMaxExactQuanta = 1 << 20;
constexpr double kRoundedQuanta = 1 << 14;

[[noreturn]] void reject(const std::string& what) { throw std::invalid_argument(what); }

// Errors name the ids, since the caller built the graph from names that this code does not have.
void check_ids(const std::vector<int32_t>& ids, size_t count, const char* kind) {
    for (int32_t id : ids)
        if (id < 0 || static_cast<size_t>(id) >= count)
            reject(std::string("there is no ") + kind + " " + std::to_string(id) +
                   " (so far: " + std::to_string(count) + ")");
}

void check_size(Bytes bytes, const char* kind) {
    if (bytes < 0) reject(std::string(kind) + " of " + std::to_string(bytes) + " bytes: sizes are not negative");
}

void check_time(double time) {
    if (!(time >= 0) || !std::isfinite(time)) reject("a time must be a finite number that is not negative");
}

// Readers, owners and neighbours are lists of ids without repetition, in ascending order.
template <class T>
void sort_unique_ids(std::vector<T>& list) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
}

template <class T>
bool contains(const std::vector<T>& list, T item) {
    return std::find(list.begin(), list.end(), item) != list.end();
}

}  // namespace

void StepGraph::require_open() const {
    if (finished_) reject("the graph is finished; nothing can be added to it");
}

Value StepGraph::add_value(Bytes bytes, bool kept, bool inner) {
    require_open();
    check_size(bytes, "a value");
    values.push_back({bytes, inner, kept, -1, {}, {}});
    return static_cast<Value>(values.size()) - 1;
}

Node StepGraph::add_node(std::vector<Value> reads, std::vector<Value> writes, double time, double recompute_time,
                         Bytes workspace_bytes, std::vector<Overlay> overlays) {
    require_open();
    check_ids(reads, values.size(), "value");
    check_ids(writes, values.size(), "value");
    check_time(time);
    check_time(recompute_time);
    check_size(workspace_bytes, "a workspace");
    const Node id = node_count();
    sort_unique_ids(reads);
    // Single assignment: each value has one producer, which comes before all its readers.
    for (Value x : writes) {
        if (values[x].producer >= 0 || !values[x].readers.empty() || contains(reads, x))
            reject("value " + std::to_string(x) + " is written by node " + std::to_string(id) +
                   " after another node wrote or read it");
        values[x].producer = id;
    }
    // A permission can only concern what the op itself writes and reads.
    for (const auto& [written, read] : overlays)
        if (!contains(writes, written) || !contains(reads, read))
            reject("an overlay names what its node does not touch");
    for (Value x : reads) values[x].readers.push_back(id);
    NodeInfo node;
    node.time = time;
    node.recompute_time = recompute_time;
    node.workspace_bytes = workspace_bytes;
    node.reads = std::move(reads);
    node.writes = std::move(writes);
    node.overlays = std::move(overlays);
    nodes.push_back(std::move(node));
    return id;
}

Grad StepGraph::add_gradient(Bytes bytes, bool final) {
    require_open();
    check_size(bytes, "a gradient");
    grads.push_back({bytes, final, {}, {}});
    return static_cast<Grad>(grads.size()) - 1;
}

Step StepGraph::add_step(Node owner, std::vector<Value> read_values, std::vector<Grad> reads, std::vector<Grad> writes,
                         double time, Bytes workspace_bytes, std::vector<Overlay> over_values,
                         std::vector<Overlay> over_grads) {
    require_open();
    // A step refers to values, gradients and a node that exist already; that it runs in time is checked by finish().
    check_ids({owner}, nodes.size(), "node");
    check_ids(read_values, values.size(), "value");
    check_ids(reads, grads.size(), "gradient");
    check_ids(writes, grads.size(), "gradient");
    check_time(time);
    check_size(workspace_bytes, "a workspace");
    sort_unique_ids(read_values);
    sort_unique_ids(reads);
    sort_unique_ids(writes);
    for (const auto& [written, read] : over_values)
        if (!contains(writes, written) || !contains(read_values, read))
            reject("an overlay names what its step does not touch");
    for (const auto& [written, read] : over_grads)
        if (!contains(writes, written) || !contains(reads, read))
            reject("an overlay names what its step does not touch");
    // Step ids are the order of the plain backward pass, so they are given in the order of calls.
    const Step id = step_count();
    steps.push_back({owner, time, workspace_bytes, std::move(read_values), std::move(reads), std::move(writes),
                     std::move(over_values), std::move(over_grads)});
    nodes[owner].steps.push_back(id);
    return id;
}

StepGraph StepGraph::value_gradients(const std::vector<double>& time, const std::vector<Bytes>& bytes,
                                     const std::vector<std::pair<Node, Node>>& edges) {
    const auto count = static_cast<Node>(time.size());
    if (bytes.size() != time.size()) reject("as many sizes as times are needed");
    std::vector<std::vector<Node>> before(count), after(count);
    for (const auto& [from, to] : edges) {
        check_ids({from, to}, count, "node");
        if (from >= to) reject("edges must lead from a lower to a higher id: ids follow a topological order");
        before[to].push_back(from);
        after[from].push_back(to);
    }
    // Value v and gradient v belong to node v, so the ids of all three kinds agree.
    StepGraph graph;
    for (Node v = 0; v < count; ++v) {
        graph.add_value(bytes[v], false);
        graph.add_gradient(bytes[v], false);
    }
    for (Node v = 0; v < count; ++v) graph.add_node(before[v], {v}, time[v], time[v], 0, {});
    // Steps from the last node to the first: the order of the plain backward pass.
    for (Node v = count - 1; v >= 0; --v) {
        std::vector<Value> read;
        for (Node w : after[v]) read.insert(read.end(), before[w].begin(), before[w].end());
        graph.add_step(v, read, after[v], {v}, time[v], 0, {}, {});
    }
    graph.finish();
    return graph;
}

void StepGraph::finish() {
    if (finished_) return;
    set_quanta();
    link_neighbours();
    check_gradients();
    finished_ = true;
}

// quanta = round(time * quanta_per_unit); time_of() in step_graph.h converts back.
// Only forward times are scaled: the planner never compares the times of steps.
void StepGraph::set_quanta() {
    // The larger of first run and recomputation bounds what any chain can recompute per node.
    double total = 0;
    bool whole = true;
    for (const NodeInfo& v : nodes) {
        total += std::max(v.time, v.recompute_time);
        whole = whole && v.time == std::floor(v.time) && v.recompute_time == std::floor(v.recompute_time);
    }
    quanta_per_unit = (whole && total < kMaxExactQuanta) || total == 0 ? 1 : kRoundedQuanta / total;
    for (NodeInfo& v : nodes) {
        v.quanta = std::llround(v.time * quanta_per_unit);
        v.recompute_quanta = std::llround(v.recompute_time * quanta_per_unit);
    }
}

// Two nodes are neighbours if one reads a value that the other writes.
void StepGraph::link_neighbours() {
    for (Node v = 0; v < node_count(); ++v)
        for (Value x : nodes[v].reads)
            if (Node u = values[x].producer; u >= 0) {
                nodes[v].predecessors.push_back(u);
                nodes[u].successors.push_back(v);
            }
    for (NodeInfo& v : nodes) {
        sort_unique_ids(v.predecessors);
        sort_unique_ids(v.successors);
    }
    // Owners stand for their steps: a segment runs the steps of its nodes, so planners compare owners with sets.
    for (const StepInfo& s : steps) {
        for (Value x : s.values) values[x].backward_owners.push_back(s.owner);
        for (Grad g : s.reads) grads[g].users.push_back(s.owner);
        for (Grad g : s.writes) {
            grads[g].users.push_back(s.owner);
            grads[g].writers.push_back(s.owner);
        }
    }
    for (ValueInfo& x : values) sort_unique_ids(x.backward_owners);
    for (GradInfo& g : grads) {
        sort_unique_ids(g.writers);
        sort_unique_ids(g.users);
    }
}

// Bit rows of ancestors take count^2 / 8 bytes: 125 KB for a thousand nodes, and one pass in topological order.
// The backward phases of segments run from the last segment to the first, each in the order of its steps.  So a
// gradient is complete when it is read, whatever the cuts are, exactly if each of its writers comes first both in the
// order of steps and in the order of lower sets: the owner of the writer must be the owner of the reader or one of its
// descendants.
void StepGraph::check_gradients() const {
    const int count = node_count();
    const size_t words = (count + 63) / 64;
    // One bit per node and ancestor: row v holds v and all nodes it depends on.
    std::vector<uint64_t> ancestors(count * words, 0);
    for (Node v = 0; v < count; ++v) {
        for (Node u : nodes[v].predecessors)
            for (size_t k = 0; k < words; ++k) ancestors[v * words + k] |= ancestors[u * words + k];
        // A node counts as its own ancestor: a step may read what another step of the same owner wrote.
        ancestors[v * words + v / 64] |= uint64_t{1} << (v % 64);
    }
    // Returns bit u of row v.
    auto depends = [&](Node v, Node u) { return (ancestors[v * words + u / 64] >> (u % 64)) & 1; };
    // Writers by rising step, since steps are visited in order.
    std::vector<std::vector<Step>> writers(grads.size());
    for (Step s = 0; s < step_count(); ++s)
        for (Grad g : steps[s].writes) writers[g].push_back(s);
    for (Step s = 0; s < step_count(); ++s) {
        for (Grad g : steps[s].reads) {
            bool has_writer = false;
            for (Step w : writers[g]) {
                // A step that reads and writes a gradient accumulates into it: its own write does not come before.
                if (w == s) continue;
                has_writer = true;
                if (w > s || !depends(steps[w].owner, steps[s].owner))
                    reject("step " + std::to_string(s) + " reads gradient " + std::to_string(g) + ", which step " +
                           std::to_string(w) + " may write later");
            }
            if (!has_writer)
                reject("step " + std::to_string(s) + " reads gradient " + std::to_string(g) +
                       ", which no step before it writes");
        }
    }
}

// Returns M({v}) of the paper.
Bytes StepGraph::node_bytes(Node v) const {
    Bytes sum = 0;
    for (Value x : nodes[v].writes) sum += values[x].bytes;
    return sum;
}

}  // namespace layermem::planning
