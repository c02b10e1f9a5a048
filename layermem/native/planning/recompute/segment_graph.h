// The graph that the search for a chain runs on: its nodes are lower sets, its edges (L, L') the segments between them,
// with their costs.  Edges are generated when a search first needs them.
//
// A search needs a box: every edge from L that might peak within `peak` and recompute within `recompute`.
//
//      recompute ^                 Cheap bounds place each edge in this plane.  Edges in earlier boxes are stored; of a
//                |____ C           new box only the rest is generated.  Tight budgets need A (short segments, much
//                |    |            recomputation), loose ones B (long segments, little recomputation).  C, which holds
//                |__A_|____ B      nearly all edges, is never generated.
//                +----|----|---> peak
//
// A new edge has a lower bound as its peak.  The exact peak takes ten times longer, since each op of the segment is
// visited: it is computed and stored only if a search cannot rule the edge out by the bound.  The peak of the forward,
// which takes a fraction of the work, is computed first.
#pragma once

#include <algorithm>
#include <vector>

#include "planning/liveness/segment_costs.h"
#include "planning/recompute/deadline.h"
#include "planning/recompute/types.h"

namespace layermem::planning::recompute {

struct CostBox {
    Bytes peak;
    Quanta recompute;
    bool contains(const CostBox& other) const { return other.peak <= peak && other.recompute <= recompute; }
};

// 24 bytes, because there is one for nearly every pair of sets that a search considers.
struct SegmentEdge {
    Bytes kept, peak;
    SetIndex to;
    uint32_t recompute : 31;
    uint32_t is_exact : 1;  // the peak is known; otherwise it is a lower bound
};

class SegmentGraph {
  public:
    SegmentGraph(const LowerSets& sets, liveness::SegmentCosts& costs);

    // Calls visit(edge) for every edge from `from` to a set of the tiers up to `upto` that may be within `box`.
    template <class Visit>
    void for_each_edge(SetIndex from, Family upto, const CostBox& box, Deadline& deadline, Visit visit) {
        for (int tier = 0; tier <= static_cast<int>(upto); ++tier)
            for (SegmentEdge& edge : generate(from, static_cast<Family>(tier), box, deadline))
                if (edge.peak <= box.peak && static_cast<Quanta>(edge.recompute) <= box.recompute) visit(edge);
    }
    // Replaces the bound of an edge's peak by the exact peak, while is_useful() returns true for the known values.
    // Returns whether the edge may still be useful.
    template <class IsUseful>
    bool make_exact(SetIndex from, SegmentEdge& edge, Deadline& deadline, IsUseful is_useful) {
        if (edge.is_exact || !is_useful()) return is_useful();
        deadline.check(Deadline::kExactSteps);
        const Bytes forward = costs_.forward_peak(from, edge.to);
        edge.peak = std::max(edge.peak, forward);
        if (!is_useful()) return false;
        edge.peak = costs_.complete_peak(forward);
        edge.is_exact = 1;
        return is_useful();
    }

  private:
    struct Source {
        std::vector<SegmentEdge> edges;
        std::vector<CostBox> boxes;  // all edges within them are generated; none contains another
    };
    std::vector<SegmentEdge>& generate(SetIndex from, Family tier, const CostBox& box, Deadline& deadline);

    const LowerSets& sets_;
    liveness::SegmentCosts& costs_;
    std::vector<Source> sources_[kFamilies];    // by tier of the target, then by source
    std::vector<SetIndex> targets_[kFamilies];  // the sets of a tier, ascending
};

}  // namespace layermem::planning::recompute
