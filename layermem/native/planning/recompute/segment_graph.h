// The pairs (L, L') that a search may step over, with what they cost, found when a search first asks for them.
//
// A search asks for a box: every pair from L that might peak within `peak` and recompute within `time`.
//
//      time ^                      Cheap bounds place each pair in this plane.  What lies in a box asked for before is
//           |____ C                known; of a new box only the rest is looked at.  Tight budgets ask for A (short
//           |    |                 segments, much time), loose ones for B (long ones, little time), and C, which
//           |__A_|____ B           holds nearly everything, is never looked at.
//           +----|----|---> peak
//
// An arc is known by its bounds at first; walking through a segment op by op takes ten times longer, so it is settled,
// for good, only when a search cannot rule it out by them.
#pragma once
#include <vector>

#include "planning/liveness/segment_costs.h"
#include "planning/recompute/deadline.h"

namespace layermem::planning {

struct Box {
    Bytes peak;
    Ticks time;
    bool holds(const Box& other) const { return other.peak <= peak && other.time <= time; }
};

struct Arc {
    Bytes kept, peak;
    int32_t to;
    uint32_t recompute : 31;
    uint32_t settled : 1;  // else kept, peak and recompute are numbers that the true ones are never below
};

class Arcs {
  public:
    Arcs(const LowerSets& sets, SegmentCosts& costs);

    // Calls visit(arc) for every arc from `from` to a set of the tiers up to `upto` that may be within `box`.
    template <class Visit>
    void each(int from, Family upto, const Box& box, Watch& watch, Visit visit) {
        for (int tier = 0; tier <= static_cast<int>(upto); ++tier)
            for (Arc& arc : known(from, static_cast<Family>(tier), box, watch))
                if (arc.peak <= box.peak && static_cast<Ticks>(arc.recompute) <= box.time) visit(arc);
    }
    // The arc with its true costs.
    void settle(int from, Arc& arc, Watch& watch);
    size_t count() const { return count_; }
    size_t settled() const { return settled_; }

  private:
    struct Source {
        std::vector<Arc> arcs;
        std::vector<Box> boxes;  // all their arcs are in the list; none holds another
    };
    std::vector<Arc>& known(int from, Family tier, const Box& box, Watch& watch);

    const LowerSets& sets_;
    SegmentCosts& costs_;
    std::vector<Source> sources_[3];  // by tier of the target
    std::vector<int> targets_[3];     // sets of a tier, ascending
    size_t count_ = 0, settled_ = 0;
};

}  // namespace layermem::planning
