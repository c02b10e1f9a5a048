// Exact search for a placement below a given height.
//
//      level  |  #####               #####     A valley is a run of sections at one level, its floor, with higher
//             |  #####      ####     #####     levels (or nothing unplaced) on both sides.  Here it is [b, c).
//             |  #####      ####     #####     Whatever lies lowest in one of its sections rests on the floor, or
//             |  #####......####     #####     the floor stays empty there.  These are the branches.
//             +--a----b-----c-----------------> sections
//
// They hold in any valley, so the search branches on the section with little slack and few branches:
//   - A section whose level and unplaced load exceed the height ends a branch.
//   - Where no unplaced residency crosses a border, both sides are searched separately: a failure in one does not undo
//     the other.
//   - A residency that spans a whole range with a level floor lies at its bottom: no branch at all.
//   - A failed state (levels and unplaced residencies of a range) is a nogood and is not searched again.
//   - Equal residencies are placed in the order of their ids, which breaks the symmetry between them.
//
// Filling from below, pruned by the unplaced load of each section and split where nothing crosses, is the search of
// MiniMalloc (Moffitt, ASPLOS 2023).  The choice of a section instead of the lowest residency, the branch that leaves a
// floor empty, and the nogoods are what makes this search fast on problems that greedy rules cannot solve.
#pragma once

#include <cstdint>
#include <vector>

#include "planning/placement/skyline.h"
#include "planning/placement/step_budget.h"

namespace layermem::planning::placement {

enum class SearchResult { found, infeasible, undecided };

// The heuristics of one run.
struct BranchingOrder {
    std::vector<int32_t>
        rank;             // per residency; among candidates that are flush with as many walls, the lowest is first
    Granules slack_bias;  // added to the slack of a section before it is weighed against its branches
};

// Nogoods: hashes of failed states, in an open table without probing.  It grows fourfold up to a limit; after that a
// new state replaces an old one.
class FailedStateCache {
  public:
    bool contains(uint64_t state) const { return slots_[slot(state)] == state; }
    void add(uint64_t state);

  private:
    static constexpr size_t kMinSlots = size_t{1} << 12;
    static constexpr size_t kMaxSlots = size_t{1} << 22;  // 32 MiB

    size_t slot(uint64_t state) const { return state & (slots_.size() - 1); }

    std::vector<uint64_t> slots_ = std::vector<uint64_t>(kMinSlots, 0);
    size_t added_ = 0;
};

class ValleySearch {
  public:
    ValleySearch(const std::vector<Residency>& residencies, const std::vector<Granules>& ground, Granules height);

    // Undecided after `max_failures`, or when the budget is exhausted.  The nogoods of a run serve the next one.
    SearchResult run(const BranchingOrder& order, int64_t max_failures, StepBudget& budget);

    const std::vector<Granules>& offsets() const { return offset_; }  // valid after SearchResult::found
    int64_t steps() const { return skyline_.steps() + steps_; }

  private:
    // A part of the problem that can be searched independently.  Ranges wait in linked lists inside ranges_.
    struct Range {
        Section begin, end;
        int32_t parent;  // the decision that left this range, or -1
        int32_t next;    // the range to search once this one is full, or -1
    };
    // One node of the search tree: the section it branches on, and which branches are left.
    struct Decision {
        Section begin, end, section;
        int32_t parent, next_range;
        Granules floor, empty_upto;    // empty_upto < 0: the floor cannot stay empty
        size_t tried, candidates_end;  // the candidates left: [tried, candidates_end) of candidates_
        size_t mark, ranges;           // sizes of the trail and of ranges_ to return to
        uint64_t state;                // fingerprint: a nogood once all branches have failed
    };
    struct Valley {
        Section begin, end, section;  // section: the one to branch on; -1: there is no valley
    };

    int32_t split(Section begin, Section end, int32_t parent, int32_t next);
    bool open_decision(const Range& range, const BranchingOrder& order);
    bool advance(Decision& decision);
    ResidencyId find_spanning(const Range& range) const;
    Valley choose_valley(const Range& range, Granules slack_bias);
    int count_flush_walls(ResidencyId r, const Valley& valley, const Range& range) const;
    void count_candidates(Section begin, Section end);
    Granules find_empty_upto(const Valley& valley, const Range& range) const;

    const std::vector<Residency>& residencies_;
    std::vector<ResidencyId> duplicate_of_;  // an equal residency of lower id, or -1
    Skyline skyline_;
    bool is_root_feasible_;
    FailedStateCache failed_states_;
    std::vector<Range> ranges_;
    std::vector<Decision> decisions_;
    std::vector<ResidencyId> candidates_;   // of all open decisions, one after the other
    std::vector<int32_t> candidate_count_;  // per section, of the valley looked at
    std::vector<Granules> offset_;
    int64_t failures_ = 0;
    mutable int64_t steps_ = 0;
};

}  // namespace layermem::planning::placement
