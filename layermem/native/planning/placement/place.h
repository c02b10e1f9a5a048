// Static placement: one offset for every residency of a schedule, in one arena.
//
//     offset
//      4 |     +-----------+
//        |     |     c     |        Residencies are half-open tick intervals [begin, end) with bytes.
//      2 | +---+---+---+---+        Two that meet in time must not meet in address.
//        | |   a   |   | b |
//      0 +-+-------+---+---+->      height   highest byte that any residency reaches (4)
//          0   1   2   3   4  tick  max live most bytes alive at one tick (4): no height is below it
//
// Known elsewhere as dynamic storage allocation: NP-hard, but training steps are kind instances.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace layermem {

using Tick = int64_t;   // index of an instruction of a schedule
using Bytes = int64_t;  // sizes, offsets, heights

struct PlaceRequest {
    std::vector<Tick> begin, end;  // [begin, end) of each residency; begin == end is never resident
    std::vector<Bytes> size;       // any size >= 0; an interval of size 0 conflicts with nothing
    std::vector<Bytes> fixed;      // empty, or for each residency the offset it must have, or -1
    Bytes align = 256;             // every offset is a multiple of it, every size is rounded up to it
    Bytes floor = 0;               // no free residency lies below; rounded up to align
    Bytes target = 0;              // any height up to this is as good as the best one
    double time_limit = 1.0;       // seconds of search; counted in steps, so that a plan is the same on every machine
};

struct PlaceResult {
    std::vector<Bytes> offset;
    Bytes height = 0;
    Bytes max_live = 0;  // of aligned sizes
    Bytes bound = 0;     // no placement is lower: max_live, raised by floor and fixed offsets
    std::string method;  // what found this placement
    bool cut_short = false;  // the clock, not the count of steps, ended the search: another run may differ
    double seconds = 0;
};

// Called now and then during a search; throws to end it (Ctrl-C).
using Poll = std::function<void()>;

// Throws std::invalid_argument on arrays of different length, negative sizes, intervals that end before they begin,
// and fixed offsets that are unaligned or overlap.
PlaceResult place(const PlaceRequest& request, const Poll& poll);

// Aligned bytes alive as a step function of time: live[i] from tick[i] up to tick[i+1]; the last is 0.
struct LiveProfile {
    std::vector<Tick> tick;
    std::vector<Bytes> live;
};
LiveProfile live_profile(const PlaceRequest& request);
Bytes max_live(const PlaceRequest& request);

}  // namespace layermem
