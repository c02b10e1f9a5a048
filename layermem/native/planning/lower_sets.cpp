#include "planning/lower_sets.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

namespace layermem::planning {
namespace {

using Bits = std::vector<uint64_t>;

constexpr size_t kFew = 1000;  // lower sets that stretches between waists may add to the extended family

void put(Bits& bits, Node v) { bits[v >> 6] |= uint64_t{1} << (v & 63); }
bool in(const Bits& bits, Node v) { return (bits[v >> 6] >> (v & 63)) & 1; }

// Every lower set of the nodes below `end` that holds all below `begin`.  Each is made once: from the one that lacks
// its highest node.  (Ids follow a topological order, so the highest node of a lower set is one that nothing else in it
// depends on.)  False: there are more than `max_sets`.
bool enumerate(const StepGraph& graph, Node begin, Node end, int words, size_t max_sets, std::vector<Bits>& out) {
    struct Frame {
        Bits set;
        Node next;  // the lowest node that may still join
    };
    std::vector<Frame> stack;
    stack.push_back({Bits(words, 0), begin});
    for (Node v = 0; v < begin; ++v) put(stack.back().set, v);
    while (!stack.empty()) {
        const Frame top = std::move(stack.back());
        stack.pop_back();
        out.push_back(top.set);
        if (out.size() > max_sets) return false;
        for (Node v = top.next; v < end; ++v) {
            const auto& before = graph.nodes[v].before;
            if (!std::all_of(before.begin(), before.end(), [&](Node u) { return in(top.set, u); })) continue;
            Frame child{top.set, v + 1};
            put(child.set, v);
            stack.push_back(std::move(child));
        }
    }
    return true;
}

// Of each node: it and all it depends on.
std::vector<Bits> ancestor_sets(const StepGraph& graph, int words) {
    const int n = graph.node_count();
    std::vector<Bits> ancestors(n, Bits(words, 0));
    for (Node v = 0; v < n; ++v) {
        for (Node u : graph.nodes[v].before)
            for (int k = 0; k < words; ++k) ancestors[v][k] |= ancestors[u][k];
        put(ancestors[v], v);
    }
    return ancestors;
}

void add_descendant_complements(const StepGraph& graph, int words, const Bits& all, std::vector<Bits>& out) {
    const int n = graph.node_count();
    std::vector<Bits> descendants(n, Bits(words, 0));
    for (Node v = n - 1; v >= 0; --v) {
        for (Node w : graph.nodes[v].after)
            for (int k = 0; k < words; ++k) descendants[v][k] |= descendants[w][k];
        put(descendants[v], v);
        Bits rest(words);
        for (int k = 0; k < words; ++k) rest[k] = all[k] & ~descendants[v][k];
        out.push_back(std::move(rest));
    }
}

void add_prefixes(const StepGraph& graph, int words, std::vector<Bits>& out) {
    Bits prefix(words, 0);
    for (Node v = 0; v < graph.node_count(); ++v) {
        put(prefix, v);
        out.push_back(prefix);
    }
}

// How many nodes each waist has, by rising number.  A waist comes first in every topological order, so it is a prefix.
std::vector<Node> waists(const StepGraph& graph, int words, const std::vector<Bits>& ancestors) {
    std::vector<Node> out{graph.node_count()};
    Bits common(words, ~uint64_t{0});  // ancestors of every node from `size` on, or one of these
    for (Node size = graph.node_count() - 1; size > 0; --size) {
        for (int k = 0; k < words; ++k) common[k] &= ancestors[size][k];
        Node held = 0;
        while (held < size && in(common, held)) ++held;
        if (held == size) out.push_back(size);
    }
    out.push_back(0);
    std::reverse(out.begin(), out.end());
    return out;
}

void add_narrow_stretches(const StepGraph& graph, int words, const std::vector<Bits>& ancestors,
                          std::vector<Bits>& out) {
    const std::vector<Node> waist = waists(graph, words, ancestors);
    std::vector<std::vector<Bits>> stretches;
    for (size_t i = 0; i + 1 < waist.size(); ++i) {
        std::vector<Bits> found;
        if (waist[i + 1] - waist[i] > 1 && enumerate(graph, waist[i], waist[i + 1], words, kFew, found))
            stretches.push_back(std::move(found));
    }
    std::stable_sort(stretches.begin(), stretches.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
    size_t count = 0;
    for (const auto& stretch : stretches) {
        if ((count += stretch.size()) > kFew) return;
        out.insert(out.end(), stretch.begin(), stretch.end());
    }
}

// Whether all nodes of the set that nothing else in it depends on are among the `ends`.
bool ends_well(const StepGraph& graph, const Bits& set, const Bits& ends) {
    for (Node v = 0; v < graph.node_count(); ++v) {
        if (!in(set, v) || in(ends, v)) continue;
        const auto& after = graph.nodes[v].after;
        if (std::none_of(after.begin(), after.end(), [&](Node w) { return in(set, w); })) return false;
    }
    return true;
}

}  // namespace

LowerSets::LowerSets(const StepGraph& graph, Family family, size_t max_sets, const std::vector<Node>* ends)
    : words_(std::max(1, (graph.node_count() + 63) / 64)) {
    std::vector<Bits> sets;
    std::vector<Family> tiers;
    Bits all(words_, 0);
    for (Node v = 0; v < graph.node_count(); ++v) put(all, v);
    sets.push_back(Bits(words_, 0));
    sets.push_back(all);
    const std::vector<Bits> ancestors = ancestor_sets(graph, words_);
    sets.insert(sets.end(), ancestors.begin(), ancestors.end());
    tiers.resize(sets.size(), Family::approx);
    if (family != Family::approx) {
        add_descendant_complements(graph, words_, all, sets);
        add_prefixes(graph, words_, sets);
        add_narrow_stretches(graph, words_, ancestors, sets);
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
    if (ends != nullptr) leave_ends(graph, *ends, sets, tiers);
    sort_unique(sets, tiers);
}

void LowerSets::leave_ends(const StepGraph& graph, const std::vector<Node>& ends, std::vector<Bits>& sets,
                           std::vector<Family>& tiers) const {
    Bits allowed(words_, 0);
    for (Node v : ends) {
        if (v < 0 || v >= graph.node_count()) throw std::invalid_argument("ends: there is no node " + std::to_string(v));
        put(allowed, v);
    }
    size_t count = 2;  // {} and V stay
    for (size_t i = 2; i < sets.size(); ++i) {
        if (!ends_well(graph, sets[i], allowed)) continue;
        std::swap(sets[count], sets[i]);
        tiers[count++] = tiers[i];
    }
    sets.resize(count);
    tiers.resize(count);
}

void LowerSets::sort_unique(std::vector<Bits>& sets, std::vector<Family>& tiers) {
    std::vector<int> size(sets.size()), order(sets.size());
    for (size_t i = 0; i < sets.size(); ++i)
        for (uint64_t word : sets[i]) size[i] += count_bits(word);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int a, int b) {
        if (size[a] != size[b]) return size[a] < size[b];
        if (sets[a] != sets[b]) return sets[a] < sets[b];
        return tiers[a] < tiers[b];
    });
    for (size_t i = 0; i < order.size(); ++i) {
        if (i > 0 && sets[order[i]] == sets[order[i - 1]]) continue;
        bits_.insert(bits_.end(), sets[order[i]].begin(), sets[order[i]].end());
        cardinal_.push_back(size[order[i]]);
        tier_.push_back(tiers[order[i]]);
    }
}

bool LowerSets::subset(int small, int large) const {
    const uint64_t *a = bits(small), *b = bits(large);
    for (int k = 0; k < words_; ++k)
        if (a[k] & ~b[k]) return false;
    return true;
}

std::vector<Node> LowerSets::members(int set) const {
    std::vector<Node> out;
    for (int k = 0; k < words_; ++k)
        for (uint64_t word = bits(set)[k]; word; word &= word - 1) out.push_back(k * 64 + lowest_bit(word));
    return out;
}

}  // namespace layermem::planning
