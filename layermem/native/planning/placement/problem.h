// The question that every placement method answers: blocks over sections, in units of the alignment.
//
// Sections stand for time.  A tick matters only where an end follows a begin: those ticks are the maximal sets of
// blocks alive together, and a block is alive in consecutive ones.  Two blocks overlap in time exactly when they share
// a section, so n blocks need at most n sections, however many ticks the schedule has.
#pragma once

#include <cstdint>
#include <vector>

#include "planning/placement/place.h"

namespace layermem::placing {

using Section = int32_t;
using Units = int64_t;  // multiples of the alignment

struct Block {
    Section first, last;  // alive in sections [first, last), first < last
    Units size;           // > 0
};

inline bool meet(const Block& a, const Block& b) { return a.first < b.last && b.first < a.last; }

struct Problem {
    std::vector<Block> blocks;  // to be placed
    std::vector<Block> pins;    // placed already, at pin_offset; no two overlap
    std::vector<Units> pin_offset;
    Section sections = 0;
    Units floor = 0;   // least offset of a block
    Units bound = 0;   // no height is below
    Units target = 0;  // >= bound: a height up to it ends the search
};

// An offset per block, and the height it comes to (pins included).
struct Layout {
    std::vector<Units> offset;
    Units height = 0;
};

// Sections for half-open stretches of any clock; `blocks` get theirs in order, sizes are left alone.  Returns how many
// sections there are.  No stretch may be empty.
struct Stretch {
    int64_t begin, end;
};
Section assign_sections(const std::vector<Stretch>& stretches, std::vector<Block>& blocks);

// Bytes of blocks (or pins) alive in each section.
std::vector<Units> section_loads(const std::vector<Block>& blocks, Section sections);

// Sets bound and raises target to it.
void bound_height(Problem& problem);

Units height_of(const Problem& problem, const std::vector<Units>& offset);

}  // namespace layermem::placing
