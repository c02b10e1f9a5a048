// How lean chains can be: the least M(U) with which each lower set can be reached within a budget and a time.
//
// Chains with as little kept as possible everywhere are one shortest path: what fits above a set depends on M(U) alone,
// and less of it never hurts.  So V is out of reach exactly if no chain fits.
#pragma once
#include <vector>

#include "planning/recompute/segment_graph.h"

namespace layermem::planning {

constexpr Bytes kUnreached = std::numeric_limits<Bytes>::max() / 4;

class Reach {
  public:
    // Segments that end in sets of the tiers up to `upto`, none above `allowed`; `inputs` are resident from the start.
    Reach(const LowerSets& sets, Arcs& arcs, Bytes inputs, Family upto, Bytes budget, Ticks allowed, Watch& watch);

    bool hopeless() const { return least_.back() >= kUnreached; }
    bool at(int set) const { return least_[set] < kUnreached; }
    Bytes least(int set) const { return least_[set]; }
    // The chain (indices of sets, without {}) that keeps as little as possible on every set it passes.
    std::vector<int> leanest() const;

  private:
    std::vector<Bytes> least_;
    std::vector<int> from_;
};

}  // namespace layermem::planning
