// Lower sets: sets of nodes that contain, with a node, everything it depends on.  A chain of them cuts a net into
// segments.
//
//          a --> b --> d                 {} {a} {ab} {ac} {abc} {abcd}   are all its lower sets
//           \--> c --/                   {b} is none: b depends on a
//
// A family is the list of lower sets that a planner may cut at, sorted by size, then by content:
//   approx    {}, V, and for each node it with its ancestors                               n + 2 sets
//   extended  and the complements of the descendants of each node, the prefixes of the
//             topological order in which the nodes are numbered, and all lower sets
//             between two neighbouring bottlenecks, small groups first, up to a limit      <= 3 n + 1002 sets
//   exact     every lower set there is, up to a limit; beyond it the extended family, marked `truncated`
//
// A bottleneck is a lower set on which everything outside depends:   a --> b ==> ... ==> c --> d   has the bottlenecks
// {a} {a b} {a .. c} {a .. d}.  Every lower set contains a bottleneck or lies in it, so the lower sets between
// neighbouring bottlenecks can be enumerated independently of all others.
//
// The ends of segments can be limited to certain nodes.  Then sets are left out whose last nodes (nodes that nothing
// else in the set depends on) include other nodes; {} and V stay.
//
// Each family includes the one before it; `tier` is the smallest family that contains a set.  {} is the first set, V
// the last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planning/step_graph.h"

namespace layermem::planning {

enum class Family { approx = 0, extended = 1, exact = 2 };
constexpr int kFamilies = 3;

class LowerSets {
  public:
    // `ends`: the nodes at which a segment may end, or null for any.
    LowerSets(const StepGraph& graph, Family family, size_t max_sets, const std::vector<Node>* ends = nullptr);

    int size() const { return static_cast<int>(tier_.size()); }
    int words() const { return words_; }           // of 64 nodes, per set
    bool truncated() const { return truncated_; }  // there were more lower sets than the limit
    const uint64_t* bits(SetIndex set) const { return &bits_[static_cast<size_t>(set) * words_]; }
    bool has(SetIndex set, Node v) const { return (bits(set)[v >> 6] >> (v & 63)) & 1; }
    Family tier(SetIndex set) const { return tier_[set]; }
    bool subset(SetIndex small, SetIndex large) const;  // small is in large, or equal to it
    std::vector<Node> members(SetIndex set) const;

  private:
    using Bits = std::vector<uint64_t>;

    void keep_sets_ending_at(const StepGraph& graph, const std::vector<Node>& ends, std::vector<Bits>& sets,
                             std::vector<Family>& tiers) const;
    void store_sorted(const std::vector<Bits>& sets, const std::vector<Family>& tiers);

    int words_;
    bool truncated_ = false;
    Bits bits_;                 // words_ per set
    std::vector<Family> tier_;  // per set
};

inline int count_bits(uint64_t word) { return __builtin_popcountll(word); }
inline int lowest_bit(uint64_t word) { return __builtin_ctzll(word); }

}  // namespace layermem::planning
