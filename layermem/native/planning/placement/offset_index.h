// Placed blocks in order of offset, and the holes between them that a new block sees.
#pragma once

#include <cstdint>
#include <vector>

#include "planning/placement/problem.h"

namespace layermem::placing {

enum class Fit { lowest, tightest };  // the first hole from below, or the one that leaves least over

// Placed blocks by offset, in chunks that say what lets a block pass them without a look at each entry.
class Pile {
public:
    // Offset from `floor` on at which `block` collides with nothing.  Both count the entries they look at.
    Units find(const Block& block, Units floor, Fit fit, int64_t& looked_at) const;
    void put(const Block& block, Units offset, int64_t& looked_at);

private:
    struct Entry {
        Section first, last;
        Units bottom, top;
    };
    struct Chunk {
        std::vector<Entry> entries;
        Section first, last;       // least first, greatest last: a block outside meets no entry
        Section latest, earliest;  // greatest first, least last: a block around both meets every entry,
        Units top, widest_hole;    // and passes them all if no hole between them is wide enough

        explicit Chunk(std::vector<Entry> of) : entries(std::move(of)) { sum_up(); }
        void sum_up();
    };
    static constexpr size_t kChunk = 64;

    std::vector<Chunk> chunks_;
};

// All placed blocks in one pile, and once more in piles of those that are alive in each slice of time: most blocks of
// a deep net are short, and a short one need look at one slice only.
class Shelf {
public:
    explicit Shelf(const Problem& problem);

    Units find(const Block& block, Fit fit) const;
    void put(const Block& block, Units offset);

    int64_t looked_at() const { return looked_at_; }  // the steps taken so far

private:
    static constexpr Section kMostSlices = 64, kLeastWidth = 128;  // of sections

    Pile whole_;
    std::vector<Pile> slices_;
    Section width_;
    Units floor_;
    mutable int64_t looked_at_ = 0;
};

}  // namespace layermem::placing
