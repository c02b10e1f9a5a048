// The least M(U) with which each lower set can be reached within a budget and a time per segment.
//
// Chains that keep as little as possible everywhere are one shortest path: the segments that fit above a set depend
// only on M(U), and a smaller M(U) excludes none.  So V is unreachable exactly if no chain fits.
#pragma once

#include <vector>

#include "planning/recompute/segment_graph.h"

namespace layermem::planning::recompute {

class Reachability {
  public:
    // Considers segments that end in sets of the tiers up to `upto` and recompute at most `max_recompute` each;
    // `inputs` bytes are resident from the start.
    Reachability(const LowerSets& sets, SegmentGraph& graph, Bytes inputs, Family upto, Bytes budget_bytes,
                 Quanta max_recompute, Deadline& deadline);

    bool is_infeasible() const { return min_kept_.back() >= kUnreached; }
    bool is_reachable(SetIndex set) const { return min_kept_[set] < kUnreached; }
    Bytes min_kept(SetIndex set) const { return min_kept_[set]; }
    // Returns the chain that keeps as little as possible on every set it passes.
    Chain min_kept_chain() const;

  private:
    std::vector<Bytes> min_kept_;
    std::vector<SetIndex> from_;  // the set before it on that chain, -1 where there is none
};

}  // namespace layermem::planning::recompute
