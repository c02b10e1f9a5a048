// Propagation for the exact search: after each decision, least offsets and levels are brought to their fixed point.
//
// A residency that is placed raises the least offsets of the unplaced residencies in its sections to its top.  Then the
// levels rise: in these sections, and in all others whose witness has moved.
//
//      before    level 2 2 2 2 2         after r is placed on [1, 3), size 3      level 2 5 5 2 2
//                                        u on [2, 4) cannot lie below 5 any more: if u was the last unplaced residency
//                                        of section 3, the level there is 5 too, and what lies below is lost
//
// Each number that changes is written once to the trail; undo() restores the old values in reverse order, without any
// computation.
#include "planning/placement/skyline.h"

#include <algorithm>
#include <numeric>

namespace layermem::planning::placement {
namespace {

// Multipliers of splitmix64 (Steele, Lea, Flood 2014) and the odd number closest to 2^64 / golden ratio.
constexpr uint64_t kMix1 = 0xbf58476d1ce4e5b9u;
constexpr uint64_t kMix2 = 0x94d049bb133111ebu;
constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;

constexpr int kIndexSteps = 4;  // of one entry of alive_: it is written to memory that is new to the cache

// The finaliser of splitmix64: a bijection whose output bits depend on all input bits.
uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * kMix1;
    x = (x ^ (x >> 27)) * kMix2;
    return x ^ (x >> 31);
}

}  // namespace

Skyline::Skyline(const std::vector<Residency>& residencies, const std::vector<Granules>& ground, Granules height)
    : residencies_(residencies), height_(height), level_(ground) {
    size_t sections = ground.size();
    size_t n = residencies.size();
    load_ = section_loads(residencies, this->sections());
    crossing_.assign(sections + 1, 0);
    least_offset_.assign(n, 0);
    witness_.assign(sections, -1);
    witness_count_.assign(n, 0);
    residency_key_.assign(n, 0);
    remaining_key_.assign(sections, 0);
    unplaced_.assign(n, 1);
    is_stale_.assign(sections, 0);
    for (size_t i = 0; i < n; ++i) {
        for (Section s = residencies[i].begin + 1; s < residencies[i].end; ++s) ++crossing_[s];
        residency_key_[i] = mix(~uint64_t{i});
        remaining_key_[residencies[i].begin] += residency_key_[i];
    }
    index_by_section();
}

// Fills alive_ by a counting sort over sections: crossing_[s] residencies come from before, the rest start in s.
void Skyline::index_by_section() {
    size_t sections = level_.size();
    size_t n = residencies_.size();
    std::vector<int64_t> starts(sections, 0);
    for (const Residency& r : residencies_) ++starts[r.begin];
    alive_at_.assign(sections + 1, 0);
    starting_at_.assign(sections, 0);
    for (size_t s = 0; s < sections; ++s) {
        starting_at_[s] = alive_at_[s] + crossing_[s];
        alive_at_[s + 1] = starting_at_[s] + starts[s];
    }
    alive_.resize(alive_at_[sections]);
    // The construction counts as work of the search: a large problem must not start one it cannot finish.
    steps_ += alive_at_[sections] * kIndexSteps;
    // A short lifespan rests on few levels, so its least offset tends to be low: update_level() ends early.
    std::vector<ResidencyId> short_first(n);
    std::iota(short_first.begin(), short_first.end(), 0);
    std::stable_sort(short_first.begin(), short_first.end(), [&](ResidencyId a, ResidencyId b) {
        return residencies_[a].end - residencies_[a].begin < residencies_[b].end - residencies_[b].begin;
    });
    std::vector<int64_t> next(alive_at_.begin(), alive_at_.end() - 1);
    std::vector<int64_t> next_start = starting_at_;
    for (ResidencyId i : short_first) {
        alive_[next_start[residencies_[i].begin]++] = i;
        for (Section s = residencies_[i].begin + 1; s < residencies_[i].end; ++s) alive_[next[s]++] = i;
    }
}

// Establishes both invariants of the header from the ground, with an empty trail: undo(0) restores this state.
bool Skyline::initialize() {
    for (size_t i = 0; i < residencies_.size(); ++i) {
        const Residency& r = residencies_[i];
        least_offset_[i] = *std::max_element(level_.begin() + r.begin, level_.begin() + r.end);
        if (least_offset_[i] + r.size > height_) return false;
    }
    for (Section s = 0; s < sections(); ++s) {
        if (!update_level(s, level_[s])) return false;
    }
    trail_.clear();
    return true;
}

bool Skyline::place(ResidencyId i) {
    remove(i);
    return raise(residencies_[i].begin, residencies_[i].end, least_offset_[i] + residencies_[i].size);
}

bool Skyline::leave_empty(Section s, Granules upto) { return raise(s, s + 1, upto); }

// The residency counts no longer among the unplaced; one trail entry stands for all these sums.
void Skyline::remove(ResidencyId i) {
    const Residency& r = residencies_[i];
    // A null pointer marks the entry: undo() reverts all the sums below for it.
    trail_.push_back({nullptr, i});
    unplaced_[i] = 0;
    remaining_key_[r.begin] -= residency_key_[i];
    for (Section s = r.begin; s < r.end; ++s) load_[s] -= r.size;
    for (Section s = r.begin + 1; s < r.end; ++s) --crossing_[s];
}

void Skyline::undo(size_t mark) {
    while (trail_.size() > mark) {
        // Either one number that was overwritten, or a residency that was placed.
        Change c = trail_.back();
        trail_.pop_back();
        if (c.where) {
            *c.where = c.old;
            continue;
        }
        const Residency& r = residencies_[c.old];
        unplaced_[c.old] = 1;
        remaining_key_[r.begin] += residency_key_[c.old];
        for (Section s = r.begin; s < r.end; ++s) load_[s] += r.size;
        for (Section s = r.begin + 1; s < r.end; ++s) ++crossing_[s];
    }
}

// Raises the offsets of unplaced residencies of sections [begin, end) to at least `upto`.  First the least offsets
// rise, each residency visited once: in the first section all that are alive, then those that start.  Then the levels
// follow, in these sections and in all others that lost their witness.
bool Skyline::raise(Section begin, Section end, Granules upto) {
    bool fits = true;
    // Their levels change in any case; those of other sections only if a witness moves.
    for (Section s = begin; s < end; ++s) invalidate(s);
    for (Section s = begin; s < end && fits; ++s) {
        Span span = s == begin ? alive(s) : starting(s);
        steps_ += span.end() - span.begin();
        for (ResidencyId r : span) {
            // A least offset never falls on the way down the search tree, so only lower ones change.
            if (!unplaced_[r] || least_offset_[r] >= upto) continue;
            set(least_offset_[r], upto);
            drop_witness(r);
            fits = fits && upto + residencies_[r].size <= height_;
        }
    }
    // Cleared to the end even after a failure: undo() restores numbers, not the list of stale sections.
    for (Section s : stale_) {
        is_stale_[s] = 0;
        fits = fits && update_level(s, s >= begin && s < end ? upto : level_[s]);
    }
    stale_.clear();
    return fits;
}

// Marks the sections stale whose level r was the witness of.
void Skyline::drop_witness(ResidencyId r) {
    // The loop ends when all of them are found, which spares the rest of the lifespan.
    Granules left = witness_count_[r];
    for (Section s = residencies_[r].begin; left > 0; ++s) {
        ++steps_;
        if (witness_[s] != r) continue;
        invalidate(s);
        --left;
    }
}

// Sets level and witness of s anew.  No least offset in s is below `lower_bound`, so the first residency that reaches
// it ends the loop.  Without unplaced residencies the level is the height: the section is closed.
bool Skyline::update_level(Section s, Granules lower_bound) {
    Granules level = height_;
    ResidencyId lowest = -1;
    for (ResidencyId r : alive(s)) {
        ++steps_;
        if (!unplaced_[r] || least_offset_[r] >= level) continue;
        level = least_offset_[r];
        lowest = r;
        if (level == lower_bound) break;
    }
    set(level_[s], level);
    set_witness(s, lowest);
    return level + load_[s] <= height_;
}

void Skyline::set_witness(Section s, ResidencyId r) {
    // The counts of both witnesses are part of the state, so they go through the trail too.
    Granules before = witness_[s];
    if (before == r) return;
    if (before >= 0) set(witness_count_[before], witness_count_[before] - 1);
    if (r >= 0) set(witness_count_[r], witness_count_[r] + 1);
    set(witness_[s], r);
}

// The hash is a sum over sections, so it does not depend on the order in which the residencies were placed.  Ranges are
// split where no unplaced residency crosses, so each unplaced one of a range starts in it and is counted exactly once.
uint64_t Skyline::fingerprint(Section begin, Section end) const {
    uint64_t state = mix((uint64_t{static_cast<uint32_t>(begin)} << 32) + static_cast<uint32_t>(end));
    for (Section s = begin; s < end; ++s) {
        uint64_t key = static_cast<uint64_t>(level_[s]) + (uint64_t{static_cast<uint32_t>(s)} << 40);
        // Level and section in one word: heights are below 2^40 granules.
        key *= kGolden;
        state += remaining_key_[s] + (key ^ (key >> 29)) * kMix1;
    }
    return state;
}

}  // namespace layermem::planning::placement
