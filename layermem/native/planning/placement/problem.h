// The problem that every placement algorithm solves: residencies over sections, in granules of the alignment.
//
// Sections are compressed time.  Only the ticks at which an end follows a begin matter: there the sets of residencies
// alive together are maximal, and a residency is alive in consecutive ones.
//
//      tick      0   1   2   3   4   5   6
//      a         |-------|                          a  [0, 1)      Two residencies overlap in time exactly when they
//      b             |-----------|                  b  [0, 2)      share a section, so n residencies need at most n
//      c                     |-----------|          c  [1, 2)      sections, however many ticks the schedule has.
//      section   |   0   |       1       |
#pragma once

#include <cstdint>
#include <vector>

#include "planning/placement/types.h"

namespace layermem::planning::placement {

struct Residency {
    Section begin, end;  // alive in sections [begin, end), begin < end
    Granules size;       // > 0
};

inline bool overlap_in_time(const Residency& a, const Residency& b) { return a.begin < b.end && b.begin < a.end; }

struct Problem {
    std::vector<Residency> residencies;  // to be placed
    std::vector<Residency> fixed;        // placed already; no two of them overlap
    std::vector<Granules> fixed_offset;  // per fixed residency
    Section sections = 0;                // how many there are
    Granules floor = 0;                  // least offset of a residency to be placed
    Granules bound = 0;                  // lower bound of the height
    Granules target = 0;                 // >= bound: a height up to it ends the search
};

struct Solution {
    std::vector<Granules> offset;  // per residency to be placed
    Granules height = 0;           // of all, fixed ones included
};

// A half-open interval of any clock.
struct Lifespan {
    int64_t begin, end;
};

// Sets begin and end of `residencies`, in the order of `lifespans`, and returns the number of sections.  No lifespan
// may be empty.
Section assign_sections(const std::vector<Lifespan>& lifespans, std::vector<Residency>& residencies);

// Returns the sum of the sizes alive in each section.
std::vector<Granules> section_loads(const std::vector<Residency>& residencies, Section sections);

// Sets problem.bound, and raises problem.target to it.
void set_bound(Problem& problem);

// Returns the highest granule that a residency, fixed or with an offset of `offset`, reaches.
Granules solution_height(const Problem& problem, const std::vector<Granules>& offset);

}  // namespace layermem::planning::placement
