// Static placement: one offset for every residency of a schedule, in one arena.
//
//     offset
//      4 |     +-----------+
//        |     |     c     |        Residencies are half-open tick intervals [begin, end) with bytes.
//      2 | +---+---+---+---+        Two that overlap in time must not overlap in address.
//        | |   a   |   | b |
//      0 +-+-------+---+---+->      height   highest byte that any residency reaches (4)
//          0   1   2   3   4  tick  max live most bytes alive at one tick (4): a lower bound of the height
//
// The problem is known as dynamic storage allocation.  It is NP-hard, but training steps are easy instances of it.
#pragma once

#include <string>
#include <vector>

#include "planning/placement/types.h"

namespace layermem::planning::placement {

struct PlacementRequest {
    std::vector<Tick> begin, end;  // [begin, end) of each residency; an empty interval conflicts with nothing
    std::vector<Bytes> size;       // >= 0; a residency of size 0 conflicts with nothing
    std::vector<Bytes> fixed;      // empty, or for each residency the offset it must have, or -1
    Bytes align = 256;             // offsets are multiples of it, sizes are rounded up to it
    Bytes floor = 0;               // least offset of a residency that is not fixed; rounded up to align
    Bytes target = 0;              // the search stops at any height up to this; 0: the least height
    Seconds step_seconds = 1.0;    // limit of the search (step_budget.h)
};

struct Placement {
    std::vector<Bytes> offset;  // per residency
    Bytes height = 0;
    Bytes max_live = 0;   // of aligned sizes
    Bytes bound = 0;      // lower bound of the height: max_live, raised by floor and fixed offsets
    std::string method;   // which algorithm produced the offsets
    Seconds seconds = 0;  // wall time of the call
};

// Throws std::invalid_argument on arrays of different length, negative sizes, intervals that end before they begin,
// and fixed offsets that are unaligned or overlap.
Placement place(const PlacementRequest& request, const Poll& poll);

// Aligned bytes alive as a step function of time: live[i] from tick[i] up to tick[i+1]; the last entry is 0.
struct LiveProfile {
    std::vector<Tick> tick;
    std::vector<Bytes> live;
};
LiveProfile live_profile(const PlacementRequest& request);
Bytes max_live(const PlacementRequest& request);

}  // namespace layermem::planning::placement
