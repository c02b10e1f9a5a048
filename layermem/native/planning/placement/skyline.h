// The state of the exact search: how high each section is filled, and how low each remaining block could still go.
//
//          level                     A block rests on the highest level of its sections.  A level is raised past what
//        |      +--+      +-----     can no longer be filled: to the least offset that any remaining block of the
//        |  +---+  |valley|          section could have.  So at every moment
//        +--+      +------+              least(block)   = max of level over its sections
//        0  first ...      sections      level(section) = min of least over its remaining blocks
//
// Every change is written to a trail and can be undone in reverse order.
#pragma once

#include <cstdint>
#include <vector>

#include "planning/placement/problem.h"

namespace layermem::placing {

class Skyline {
public:
    // `ground` is the level of each section before any block is placed; nothing may rise above `height`.
    Skyline(const std::vector<Block>& blocks, const std::vector<Units>& ground, Units height);

    // Each returns false when some block or section no longer fits below the height; undo() then.
    bool start();                             // once, before anything else
    bool put(int32_t block);                  // at least(block)
    bool leave_empty(Section s, Units upto);  // no remaining block of s lies below `upto`

    size_t mark() const { return trail_.size(); }
    void undo(size_t mark);

    Section sections() const { return static_cast<Section>(level_.size()); }
    Units height() const { return height_; }
    Units level(Section s) const { return level_[s]; }  // the height itself where nothing remains
    Units slack(Section s) const { return height_ - level_[s] - load_[s]; }
    Units least(int32_t block) const { return least_[block]; }
    bool remains(int32_t block) const { return remains_[block]; }
    // Whether a remaining block is alive on both sides of the border between sections s - 1 and s.
    bool crossed(Section s) const { return crossing_[s] > 0; }
    // A number that tells this state of sections [first, last) from others: levels and remaining blocks.
    uint64_t fingerprint(Section first, Section last) const;

    struct Span {
        const int32_t *first, *last;
        const int32_t* begin() const { return first; }
        const int32_t* end() const { return last; }
    };
    // Blocks of a section, placed or not; and those whose first section it is.
    Span alive(Section s) const { return {alive_.data() + alive_at_[s], alive_.data() + alive_at_[s + 1]}; }
    Span starting(Section s) const { return {alive_.data() + starting_at_[s], alive_.data() + alive_at_[s + 1]}; }

    int64_t looked_at() const { return looked_at_; }  // the steps taken so far

private:
    struct Change {
        Units* where;  // null: block number `old` was placed
        Units old;
    };

    void index_by_section();
    void set(Units& where, Units value) {
        trail_.push_back({&where, where});
        where = value;
    }
    void touch(Section s) {
        if (touched_[s]) return;
        touched_[s] = 1;
        to_level_.push_back(s);
    }
    void take_out(int32_t block);
    bool lift(Section first, Section last, Units upto);
    void unwitness(int32_t block);
    bool level_again(Section s, Units atleast);
    void witness(Section s, int32_t block);

    const std::vector<Block>& blocks_;
    Units height_;
    std::vector<int32_t> alive_;  // per section: blocks from before, then those starting here; the short-lived first
    std::vector<int64_t> alive_at_, starting_at_;
    std::vector<Units> level_, load_, crossing_, least_;
    std::vector<Units> witness_;    // per section: a remaining block whose least is its level, or -1
    std::vector<Units> witnessed_;  // per block: how many sections have it as witness
    std::vector<uint64_t> key_, remaining_key_;  // per block; per section, summed over the remaining blocks it starts
    std::vector<char> remains_, touched_;
    std::vector<Section> to_level_;  // the touched sections
    std::vector<Change> trail_;
    int64_t looked_at_ = 0;
};

}  // namespace layermem::placing
