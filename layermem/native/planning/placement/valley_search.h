// Exact search for a placement below a given height.
//
// A valley is a run of sections at one level, with higher levels (or nothing left) on both sides.  Whatever lies lowest
// in one of its sections either rests on the valley's floor, or the floor stays empty there: those are the branches,
// in any valley, so the section with little slack and few branches is taken first.
//   - A section whose level and remaining load exceed the height ends a branch.
//   - Where no remaining block crosses a border, both sides are searched apart: a dead end in one does not bring back
//     the other.
//   - A block that spans a whole range whose floor is flat lies at its bottom: no branch at all.
//   - A state (levels and remaining blocks of a range) once found hopeless is not searched again.
//
// Filling from below, pruned by what remains of each section and split where nothing crosses, is how MiniMalloc
// (Moffitt, ASPLOS 2023) searches; choosing the section instead of the lowest block, the branch that leaves a floor
// empty, and the memory of hopeless states are what makes this one fast on what greedy rules cannot place.
#pragma once

#include <cstdint>
#include <vector>

#include "planning/placement/skyline.h"
#include "planning/placement/step_budget.h"

namespace layermem::placing {

enum class Verdict { found, impossible, undecided };

// What one run prefers.
struct Taste {
    std::vector<int32_t> rank;  // of each block; among candidates that even out as many walls, the lowest goes first
    Units indifferent;          // so much slack in a section weighs as much as none when choosing where to branch
};

// Hashes of the states found hopeless.  It grows with them up to a limit; then a new one takes an old one's slot.
class Hopeless {
public:
    bool holds(uint64_t state) const { return slots_[slot(state)] == state; }
    void add(uint64_t state);

private:
    static constexpr size_t kLeast = size_t{1} << 12, kMost = size_t{1} << 22;

    size_t slot(uint64_t state) const { return state & (slots_.size() - 1); }

    std::vector<uint64_t> slots_ = std::vector<uint64_t>(kLeast, 0);
    size_t added_ = 0;
};

class ValleySearch {
public:
    ValleySearch(const std::vector<Block>& blocks, const std::vector<Units>& ground, Units height);

    // Undecided after so many dead ends, or when the steps are used up.  What was found hopeless stays known to the
    // next run.
    Verdict run(const Taste& taste, int64_t dead_ends, Steps& steps);

    const std::vector<Units>& offsets() const { return offset_; }  // once found
    int64_t looked_at() const { return skyline_.looked_at() + looked_at_; }

private:
    struct Range {
        Section first, last;
        int32_t parent;  // the decision that left this range, or -1
        int32_t next;    // the range to search once this one is full, or -1
    };
    struct Decision {
        Section first, last, section;
        int32_t parent, next_range;
        Units floor, empty_upto;  // empty_upto < 0: the floor cannot stay empty
        size_t candidates_end, tried;
        size_t mark, ranges;  // sizes of the trail and of ranges_ to come back to
        uint64_t state;
    };
    struct Valley {
        Section first, last, section;  // section: the one to branch on; -1: no valley
    };

    int32_t split(Section first, Section last, int32_t parent, int32_t next);
    bool decide(const Range& range, const Taste& taste);
    bool advance(Decision& decision);
    int32_t spanning_block(const Range& range) const;
    Valley choose(const Range& range, Units indifferent);
    int walls_evened(int32_t block, const Valley& valley, const Range& range) const;
    void count_candidates(Section first, Section last);
    Units empty_upto(const Valley& valley, const Range& range) const;

    const std::vector<Block>& blocks_;
    std::vector<int32_t> twin_;  // an equal block of lower number, or -1: twins are placed in order
    Skyline skyline_;
    bool startable_;
    Hopeless hopeless_;
    std::vector<Range> ranges_;
    std::vector<Decision> decisions_;
    std::vector<int32_t> candidates_;  // of all open decisions, one after the other
    std::vector<int32_t> count_;       // candidates of each section of the valley at hand
    std::vector<Units> offset_;
    int64_t dead_ends_ = 0;
    mutable int64_t looked_at_ = 0;
};

}  // namespace layermem::placing
