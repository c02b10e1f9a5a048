// The placed residencies by offset, and the gaps between them that are free for the lifespan of a new one.
#pragma once

#include <cstdint>
#include <vector>

#include "planning/placement/problem.h"

namespace layermem::planning::placement {

enum class Fit {
    first,  // the lowest gap that is large enough
    best    // the gap that leaves the fewest granules over; the lowest of equal ones
};

// Placed residencies by rising offset, in chunks with a summary each: a query skips a chunk by its summary alone.
//
//      offset ^   +----+     +---------+     top           highest top of the chunk
//             |   |  3 |  +--+---------+     widest gap    between neighbours by offset, if all of them counted
//             |   +----+  |  2 |             begin, end    the sections that any entry touches
//             |           +----+             latest, earliest   the largest begin, the smallest end:
//             |        | 1 |                                    a lifespan around both overlaps with every entry
//             +-------------------> sections
class OffsetList {
  public:
    // Returns the offset >= floor at which `residency` overlaps with none.  Both functions add to `steps`.
    Granules find_offset(const Residency& residency, Granules floor, Fit fit, int64_t& steps) const;
    void insert(const Residency& residency, Granules offset, int64_t& steps);

  private:
    struct Entry {
        Section begin, end;
        Granules bottom, top;
    };
    struct Chunk {
        std::vector<Entry> entries;
        Section begin, end;        // smallest begin, largest end: a lifespan outside overlaps with no entry
        Section latest, earliest;  // largest begin, smallest end: a lifespan around both overlaps with every entry
        Granules top, widest_gap;

        explicit Chunk(std::vector<Entry> of) : entries(std::move(of)) { summarize(); }
        void summarize();
    };
    static constexpr size_t kMaxChunkEntries = 64;

    std::vector<Chunk> chunks_;
};

// All placed residencies in one list, and once more in one list per slice of time: most residencies of a deep net are
// short, and a short one needs the list of its slice only.
class OffsetIndex {
  public:
    explicit OffsetIndex(const Problem& problem);  // with the fixed residencies in it

    Granules find_offset(const Residency& residency, Fit fit) const;
    void insert(const Residency& residency, Granules offset);

    int64_t steps() const { return steps_; }  // entries inspected so far

  private:
    static constexpr Section kMaxSlices = 64;
    static constexpr Section kMinSliceWidth = 128;  // sections

    OffsetList whole_;
    std::vector<OffsetList> slices_;
    Section slice_width_;
    Granules floor_;
    mutable int64_t steps_ = 0;
};

}  // namespace layermem::planning::placement
