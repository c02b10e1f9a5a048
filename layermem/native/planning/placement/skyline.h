// The state of the exact search: how high each section is filled, and how low each unplaced residency could still go.
//
//          level                     A residency rests on the highest level of its sections.  A level is raised past
//        |      +--+      +-----     what can no longer be filled: to the least offset that any unplaced residency of
//        |  +---+  |valley|          the section could have.  So at every moment
//        +--+      +------+              least_offset(r) = max of level over the sections of r
//        0  first ...      sections      level(s)        = min of least_offset over the unplaced residencies of s
//
// Each section stores a witness, an unplaced residency whose least offset is the level.  A level can only rise when
// its witness does, so a change inspects only the sections whose witness it concerns.
//
// Every change is written to a trail and can be undone in reverse order, as in a SAT or constraint solver.
#pragma once

#include <cstdint>
#include <vector>

#include "planning/placement/problem.h"

namespace layermem::planning::placement {

class Skyline {
  public:
    // `ground` is the level of each section before any residency is placed; nothing may rise above `height`.
    Skyline(const std::vector<Residency>& residencies, const std::vector<Granules>& ground, Granules height);

    // Each returns false if some residency or section no longer fits below the height; then call undo().
    bool initialize();                           // once, before anything else
    bool place(ResidencyId r);                   // at least_offset(r)
    bool leave_empty(Section s, Granules upto);  // no unplaced residency of s lies below `upto`

    size_t mark() const { return trail_.size(); }
    void undo(size_t mark);

    Section sections() const { return static_cast<Section>(level_.size()); }
    Granules height() const { return height_; }
    Granules level(Section s) const { return level_[s]; }  // the height itself where nothing is unplaced
    // Returns the granules of section s that may stay empty: height, less level and unplaced sizes.
    Granules slack(Section s) const { return height_ - level_[s] - load_[s]; }
    Granules least_offset(ResidencyId r) const { return least_offset_[r]; }
    bool is_unplaced(ResidencyId r) const { return unplaced_[r]; }
    // Returns whether an unplaced residency is alive on both sides of the border between sections s - 1 and s.
    bool is_crossed(Section s) const { return crossing_[s] > 0; }
    // Returns a hash of the state of sections [begin, end): their levels and their unplaced residencies.
    uint64_t fingerprint(Section begin, Section end) const;

    struct Span {
        const ResidencyId *first, *last;
        const ResidencyId* begin() const { return first; }
        const ResidencyId* end() const { return last; }
    };
    // Return the residencies of a section, placed or not; and those whose first section it is.
    Span alive(Section s) const { return {alive_.data() + alive_at_[s], alive_.data() + alive_at_[s + 1]}; }
    Span starting(Section s) const { return {alive_.data() + starting_at_[s], alive_.data() + alive_at_[s + 1]}; }

    int64_t steps() const { return steps_; }  // residencies and sections inspected so far

  private:
    struct Change {
        Granules* where;  // null: residency `old` was placed
        Granules old;
    };

    void index_by_section();
    void set(Granules& where, Granules value) {
        trail_.push_back({&where, where});
        where = value;
    }
    // Notes that the level of s must be found again.
    void invalidate(Section s) {
        if (is_stale_[s]) return;
        is_stale_[s] = 1;
        stale_.push_back(s);
    }
    void remove(ResidencyId r);
    bool raise(Section begin, Section end, Granules upto);
    void drop_witness(ResidencyId r);
    bool update_level(Section s, Granules lower_bound);
    void set_witness(Section s, ResidencyId r);

    const std::vector<Residency>& residencies_;
    Granules height_;
    // Per section: residencies alive before it, then those that start in it; short lifespans first in either part.
    std::vector<ResidencyId> alive_;
    std::vector<int64_t> alive_at_, starting_at_;          // per section: where its two parts begin in alive_
    std::vector<Granules> level_, load_, crossing_;        // per section; crossing_ counts residencies
    std::vector<Granules> least_offset_;                   // per residency
    std::vector<Granules> witness_;                        // per section: an id, or -1
    std::vector<Granules> witness_count_;                  // per residency: the sections it is the witness of
    std::vector<uint64_t> residency_key_, remaining_key_;  // hash; its sum over the unplaced that start in a section
    std::vector<char> unplaced_, is_stale_;                // per residency; per section
    std::vector<Section> stale_;                           // the sections with is_stale_
    std::vector<Change> trail_;
    int64_t steps_ = 0;
};

}  // namespace layermem::planning::placement
