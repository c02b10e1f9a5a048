#include "planning/lower_sets.h"

#include <algorithm>
#include <numeric>

namespace layermem {
namespace {

using Bits = std::vector<uint64_t>;

void put(Bits& bits, Node v) { bits[v >> 6] |= uint64_t{1} << (v & 63); }
bool in(const Bits& bits, Node v) { return (bits[v >> 6] >> (v & 63)) & 1; }

// Each lower set is made once: from the one that lacks its highest node.  (Ids follow a topological order, so the
// highest node of a lower set is one that nothing else in it depends on.)  False: there are more than `max_sets`.
bool enumerate(const StepGraph& graph, int words, size_t max_sets, std::vector<Bits>& out) {
    struct Frame {
        Bits set;
        Node next;  // the lowest node that may still join
    };
    std::vector<Frame> stack;
    stack.push_back({Bits(words, 0), 0});
    while (!stack.empty()) {
        const Frame top = std::move(stack.back());
        stack.pop_back();
        out.push_back(top.set);
        if (out.size() > max_sets) return false;
        for (Node v = top.next; v < graph.node_count(); ++v) {
            const auto& before = graph.nodes[v].before;
            if (!std::all_of(before.begin(), before.end(), [&](Node u) { return in(top.set, u); })) continue;
            Frame child{top.set, v + 1};
            put(child.set, v);
            stack.push_back(std::move(child));
        }
    }
    return true;
}

void add_ancestor_sets(const StepGraph& graph, int words, std::vector<Bits>& out) {
    const int n = graph.node_count();
    std::vector<Bits> ancestors(n, Bits(words, 0));
    for (Node v = 0; v < n; ++v) {
        for (Node u : graph.nodes[v].before)
            for (int k = 0; k < words; ++k) ancestors[v][k] |= ancestors[u][k];
        put(ancestors[v], v);
        out.push_back(ancestors[v]);
    }
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

}  // namespace

LowerSets::LowerSets(const StepGraph& graph, Family family, size_t max_sets)
    : words_(std::max(1, (graph.node_count() + 63) / 64)) {
    std::vector<Bits> sets;
    std::vector<Family> tiers;
    Bits all(words_, 0);
    for (Node v = 0; v < graph.node_count(); ++v) put(all, v);
    sets.push_back(Bits(words_, 0));
    sets.push_back(all);
    add_ancestor_sets(graph, words_, sets);
    tiers.resize(sets.size(), Family::approx);
    if (family != Family::approx) {
        add_descendant_complements(graph, words_, all, sets);
        add_prefixes(graph, words_, sets);
        tiers.resize(sets.size(), Family::extended);
    }
    if (family == Family::exact) {
        std::vector<Bits> every;
        truncated_ = !enumerate(graph, words_, max_sets, every);
        if (!truncated_) {
            sets.insert(sets.end(), std::make_move_iterator(every.begin()), std::make_move_iterator(every.end()));
            tiers.resize(sets.size(), Family::exact);
        }
    }
    sort_unique(sets, tiers);
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

}  // namespace layermem
