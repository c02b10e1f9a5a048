// Construction of the three families.  Sets are bit vectors of `words` times 64 nodes; unions and intersections work
// word by word.
//
// The number of lower sets is exponential in the width of the graph, so `exact` is for small or narrow graphs; the
// extended family has linearly many and contains the cuts that matter in practice: at one node, along the order of
// execution, and every way through a narrow place.
#include "planning/lower_sets.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

namespace layermem::planning {
namespace {

using Bits = std::vector<uint64_t>;

constexpr size_t kMaxSetsBetween = 1000;  // lower sets between bottlenecks that the extended family may have

void insert(Bits& bits, Node v) { bits[v >> 6] |= uint64_t{1} << (v & 63); }
bool contains(const Bits& bits, Node v) { return (bits[v >> 6] >> (v & 63)) & 1; }

// Enumerates, depth first, every lower set of the nodes below `end` that contains all nodes below `begin`.  Each is
// made once, from the set without its highest node.  (Ids follow a topological order, so nothing else in a lower set
// depends on its highest node.)  Returns false if there are more than `max_sets`.
bool enumerate(const StepGraph& graph, Node begin, Node end, int words, size_t max_sets, std::vector<Bits>& out) {
    struct Frame {
        Bits set;
        Node next;  // the lowest node that may still join
    };
    std::vector<Frame> stack;
    // Each frame is one lower set; children add one node that is higher than all added before.
    stack.push_back({Bits(words, 0), begin});
    for (Node v = 0; v < begin; ++v) insert(stack.back().set, v);
    while (!stack.empty()) {
        const Frame top = std::move(stack.back());
        stack.pop_back();
        out.push_back(top.set);
        if (out.size() > max_sets) return false;
        for (Node v = top.next; v < end; ++v) {
            const auto& predecessors = graph.nodes[v].predecessors;
            auto is_in_set = [&](Node u) { return contains(top.set, u); };
            if (!std::all_of(predecessors.begin(), predecessors.end(), is_in_set)) continue;
            Frame child{top.set, v + 1};
            insert(child.set, v);
            stack.push_back(std::move(child));
        }
    }
    return true;
}

// Returns each node with all nodes it depends on.  Ids are topological, so one pass by rising id closes the relation.
std::vector<Bits> ancestor_sets(const StepGraph& graph, int words) {
    const int n = graph.node_count();
    std::vector<Bits> ancestors(n, Bits(words, 0));
    for (Node v = 0; v < n; ++v) {
        for (Node u : graph.nodes[v].predecessors)
            for (int k = 0; k < words; ++k) ancestors[v][k] |= ancestors[u][k];
        insert(ancestors[v], v);
    }
    return ancestors;
}

// The nodes that do not depend on v are a lower set: the largest one without v.
void add_descendant_complements(const StepGraph& graph, int words, const Bits& all, std::vector<Bits>& out) {
    const int n = graph.node_count();
    std::vector<Bits> descendants(n, Bits(words, 0));
    for (Node v = n - 1; v >= 0; --v) {
        for (Node w : graph.nodes[v].successors)
            for (int k = 0; k < words; ++k) descendants[v][k] |= descendants[w][k];
        insert(descendants[v], v);
        Bits rest(words);
        for (int k = 0; k < words; ++k) rest[k] = all[k] & ~descendants[v][k];
        out.push_back(std::move(rest));
    }
}

// Adds the ops that have run at each moment of the forward: a lower set, because ids follow a topological order.
void add_prefixes(const StepGraph& graph, int words, std::vector<Bits>& out) {
    Bits prefix(words, 0);
    for (Node v = 0; v < graph.node_count(); ++v) {
        insert(prefix, v);
        out.push_back(prefix);
    }
}

// Returns the number of nodes of each bottleneck, ascending.  A bottleneck comes first in every topological order, so
// it is a prefix: `size` nodes are one if they are ancestors of all nodes from `size` on.
std::vector<Node> find_bottlenecks(const StepGraph& graph, int words, const std::vector<Bits>& ancestors) {
    std::vector<Node> out{graph.node_count()};
    // Goes from the end and adds one node at a time: each intersection costs `words` operations.
    Bits common(words, ~uint64_t{0});  // the intersection of the ancestors of every node from `size` on
    for (Node size = graph.node_count() - 1; size > 0; --size) {
        for (int k = 0; k < words; ++k) common[k] &= ancestors[size][k];
        Node prefix = 0;
        while (prefix < size && contains(common, prefix)) ++prefix;
        if (prefix == size) out.push_back(size);
    }
    out.push_back(0);
    std::reverse(out.begin(), out.end());
    return out;
}

// Groups with the fewest sets come first: they give the most places to cut at within the limit.
void add_sets_between_bottlenecks(const StepGraph& graph, int words, const std::vector<Bits>& ancestors,
                                  std::vector<Bits>& out) {
    const std::vector<Node> bottlenecks = find_bottlenecks(graph, words, ancestors);
    std::vector<std::vector<Bits>> groups;
    for (size_t i = 0; i + 1 < bottlenecks.size(); ++i) {
        const Node begin = bottlenecks[i];
        const Node end = bottlenecks[i + 1];
        std::vector<Bits> group;
        // Groups are enumerated one by one: within a group, all nodes of the earlier bottleneck are in the set. A
        // single node between two bottlenecks has no other lower sets; groups with too many sets are skipped entirely.
        if (end - begin > 1 && enumerate(graph, begin, end, words, kMaxSetsBetween, group)) {
            groups.push_back(std::move(group));
        }
    }
    std::stable_sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
    size_t count = 0;
    for (const auto& group : groups) {
        count += group.size();
        if (count > kMaxSetsBetween) return;
        out.insert(out.end(), group.begin(), group.end());
    }
}

// Returns whether `ends` contains all nodes of the set that nothing else in it depends on.
bool ends_only_at(const StepGraph& graph, const Bits& set, const Bits& ends) {
    for (Node v = 0; v < graph.node_count(); ++v) {
        if (!contains(set, v) || contains(ends, v)) continue;
        const auto& successors = graph.nodes[v].successors;
        auto is_in_set = [&](Node w) { return contains(set, w); };
        if (std::none_of(successors.begin(), successors.end(), is_in_set)) return false;
    }
    return true;
}

}  // namespace

// Sets are appended family by family, so the tier of each is known by its position; duplicates go in store_sorted().
LowerSets::LowerSets(const StepGraph& graph, Family family, size_t max_sets, const std::vector<Node>* ends)
    : words_(std::max(1, (graph.node_count() + 63) / 64)) {
    std::vector<Bits> sets;
    std::vector<Family> tiers;
    Bits all(words_, 0);
    for (Node v = 0; v < graph.node_count(); ++v) insert(all, v);
    // {} and V belong to every family; keep_sets_ending_at() relies on their being the first two.
    sets.push_back(Bits(words_, 0));
    sets.push_back(all);
    const std::vector<Bits> ancestors = ancestor_sets(graph, words_);
    sets.insert(sets.end(), ancestors.begin(), ancestors.end());
    tiers.resize(sets.size(), Family::approx);
    if (family != Family::approx) {
        add_descendant_complements(graph, words_, all, sets);
        add_prefixes(graph, words_, sets);
        add_sets_between_bottlenecks(graph, words_, ancestors, sets);
        tiers.resize(sets.size(), Family::extended);
    }
    if (family == Family::exact) {
        std::vector<Bits> every;
        truncated_ = !enumerate(graph, 0, graph.node_count(), words_, max_sets, every);
        if (!truncated_) {
            sets.insert(sets.end(), std::make_move_iterator(every.begin()), std::make_move_iterator(every.end()));
            tiers.resize(sets.size(), Family::exact);
        }
    }
    if (ends != nullptr) keep_sets_ending_at(graph, *ends, sets, tiers);
    store_sorted(sets, tiers);
}

void LowerSets::keep_sets_ending_at(const StepGraph& graph, const std::vector<Node>& ends, std::vector<Bits>& sets,
                                    std::vector<Family>& tiers) const {
    Bits allowed(words_, 0);
    for (Node v : ends) {
        if (v < 0 || v >= graph.node_count())
            throw std::invalid_argument("ends: there is no node " + std::to_string(v));
        insert(allowed, v);
    }
    size_t count = 2;  // {} and V, the first two, stay
    for (size_t i = 2; i < sets.size(); ++i) {
        if (!ends_only_at(graph, sets[i], allowed)) continue;
        std::swap(sets[count], sets[i]);
        tiers[count++] = tiers[i];
    }
    sets.resize(count);
    tiers.resize(count);
}

// Among equal sets, the one of the lowest tier comes first and is kept.
void LowerSets::store_sorted(const std::vector<Bits>& sets, const std::vector<Family>& tiers) {
    // Sorted through an order of indices: swapping ints is cheaper than swapping bit vectors.
    std::vector<int> cardinality(sets.size());
    std::vector<int> order(sets.size());
    for (size_t i = 0; i < sets.size(); ++i)
        for (uint64_t word : sets[i]) cardinality[i] += count_bits(word);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int a, int b) {
        if (cardinality[a] != cardinality[b]) return cardinality[a] < cardinality[b];
        if (sets[a] != sets[b]) return sets[a] < sets[b];
        return tiers[a] < tiers[b];
    });
    for (size_t i = 0; i < order.size(); ++i) {
        if (i > 0 && sets[order[i]] == sets[order[i - 1]]) continue;
        bits_.insert(bits_.end(), sets[order[i]].begin(), sets[order[i]].end());
        tier_.push_back(tiers[order[i]]);
    }
}

// Tests that no bit of the small set is missing in the large one.
bool LowerSets::subset(SetIndex small, SetIndex large) const {
    const uint64_t* a = bits(small);
    const uint64_t* b = bits(large);
    for (int k = 0; k < words_; ++k)
        if (a[k] & ~b[k]) return false;
    return true;
}

std::vector<Node> LowerSets::members(SetIndex set) const {
    std::vector<Node> out;
    for (int k = 0; k < words_; ++k)
        // word & (word - 1) clears the lowest bit.
        for (uint64_t word = bits(set)[k]; word; word &= word - 1) out.push_back(k * 64 + lowest_bit(word));
    return out;
}

}  // namespace layermem::planning
