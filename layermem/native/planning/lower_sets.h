// Lower sets: sets of nodes that hold, with a node, everything it depends on.  A chain of them cuts a net in segments.
//
//          a --> b --> d                 {} {a} {ab} {ac} {abc} {abcd}   are all its lower sets
//           \--> c --/                   {b} is none: b depends on a
//
// A family is the list of lower sets that a planner may cut at, sorted by size, then by content:
//   approx    {}, V, and for each node it with its ancestors                               n + 2 sets
//   extended  and the complements of the descendants of each node, the prefixes of the
//             topological order in which the nodes are numbered, and all lower sets of
//             stretches between two waists, narrow ones first, as long as they are few     <= 3 n + 1002 sets
//   exact     every lower set there is, up to a limit; beyond it the extended family, marked `truncated`
// A waist is a lower set on which all that is outside depends:   a --> b ==> ... ==> c --> d   has the waists {a}
// {a b} {a .. c} {a .. d}: every lower set holds a waist or lies in it, so the stretches between them combine freely.
// A segment may be told to end at certain nodes only: then sets go whose last nodes (those that nothing else in the set
// depends on) are others, {} and V aside.
// Each family holds the one before it; `tier` says where a set came in.  {} is the first set, V the last.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "planning/step_graph.h"

namespace layermem::planning {

enum class Family { approx = 0, extended = 1, exact = 2 };

class LowerSets {
  public:
    // `ends`: the nodes at which a segment may end, or null for any.
    LowerSets(const StepGraph& graph, Family family, size_t max_sets, const std::vector<Node>* ends = nullptr);

    int size() const { return static_cast<int>(tier_.size()); }
    int words() const { return words_; }
    bool truncated() const { return truncated_; }  // there were more lower sets than the limit
    const uint64_t* bits(int set) const { return &bits_[static_cast<size_t>(set) * words_]; }
    bool has(int set, Node v) const { return (bits(set)[v >> 6] >> (v & 63)) & 1; }
    int cardinal(int set) const { return cardinal_[set]; }
    Family tier(int set) const { return tier_[set]; }
    bool subset(int small, int large) const;     // small is in large (equality included)
    std::vector<Node> members(int set) const;

  private:
    void leave_ends(const StepGraph& graph, const std::vector<Node>& ends, std::vector<std::vector<uint64_t>>& sets,
                    std::vector<Family>& tiers) const;
    void sort_unique(std::vector<std::vector<uint64_t>>& sets, std::vector<Family>& tiers);
    int words_;
    bool truncated_ = false;
    std::vector<uint64_t> bits_;
    std::vector<int> cardinal_;
    std::vector<Family> tier_;
};

inline int count_bits(uint64_t word) { return __builtin_popcountll(word); }
inline int lowest_bit(uint64_t word) { return __builtin_ctzll(word); }

}  // namespace layermem::planning
