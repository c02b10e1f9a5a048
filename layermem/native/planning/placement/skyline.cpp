#include "planning/placement/skyline.h"

#include <algorithm>
#include <numeric>

namespace layermem::placing {
namespace {

uint64_t scramble(uint64_t x) {  // the finaliser of splitmix64
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

}  // namespace

Skyline::Skyline(const std::vector<Block>& blocks, const std::vector<Units>& ground, Units height)
    : blocks_(blocks), height_(height), level_(ground) {
    size_t sections = ground.size(), n = blocks.size();
    load_ = section_loads(blocks, this->sections());
    crossing_.assign(sections + 1, 0);
    least_.assign(n, 0);
    witness_.assign(sections, -1);
    witnessed_.assign(n, 0);
    key_.assign(n, 0);
    remaining_key_.assign(sections, 0);
    remains_.assign(n, 1);
    touched_.assign(sections, 0);
    for (size_t i = 0; i < n; ++i) {
        for (Section s = blocks[i].first + 1; s < blocks[i].last; ++s) ++crossing_[s];
        key_[i] = scramble(~uint64_t{i});
        remaining_key_[blocks[i].first] += key_[i];
    }
    index_by_section();
}

void Skyline::index_by_section() {
    size_t sections = level_.size(), n = blocks_.size();
    std::vector<int64_t> here(sections, 0);
    for (const Block& b : blocks_) ++here[b.first];
    alive_at_.assign(sections + 1, 0);
    starting_at_.assign(sections, 0);
    for (size_t s = 0; s < sections; ++s) {
        starting_at_[s] = alive_at_[s] + crossing_[s];
        alive_at_[s + 1] = starting_at_[s] + here[s];
    }
    alive_.resize(alive_at_[sections]);
    looked_at_ += alive_at_[sections] * 4;  // memory new to the cache
    std::vector<int32_t> short_first(n);
    std::iota(short_first.begin(), short_first.end(), 0);
    std::stable_sort(short_first.begin(), short_first.end(), [&](int32_t a, int32_t b) {
        return blocks_[a].last - blocks_[a].first < blocks_[b].last - blocks_[b].first;
    });
    std::vector<int64_t> next(alive_at_.begin(), alive_at_.end() - 1), next_here = starting_at_;
    for (int32_t i : short_first) {
        alive_[next_here[blocks_[i].first]++] = i;
        for (Section s = blocks_[i].first + 1; s < blocks_[i].last; ++s) alive_[next[s]++] = i;
    }
}

bool Skyline::start() {
    for (size_t i = 0; i < blocks_.size(); ++i) {
        const Block& b = blocks_[i];
        least_[i] = *std::max_element(level_.begin() + b.first, level_.begin() + b.last);
        if (least_[i] + b.size > height_) return false;
    }
    for (Section s = 0; s < sections(); ++s) {
        if (!level_again(s, level_[s])) return false;
    }
    trail_.clear();
    return true;
}

bool Skyline::put(int32_t i) {
    take_out(i);
    return lift(blocks_[i].first, blocks_[i].last, least_[i] + blocks_[i].size);
}

bool Skyline::leave_empty(Section s, Units upto) { return lift(s, s + 1, upto); }

void Skyline::take_out(int32_t i) {
    const Block& b = blocks_[i];
    trail_.push_back({nullptr, i});
    remains_[i] = 0;
    remaining_key_[b.first] -= key_[i];
    for (Section s = b.first; s < b.last; ++s) load_[s] -= b.size;
    for (Section s = b.first + 1; s < b.last; ++s) --crossing_[s];
}

void Skyline::undo(size_t mark) {
    while (trail_.size() > mark) {
        Change c = trail_.back();
        trail_.pop_back();
        if (c.where) {
            *c.where = c.old;
            continue;
        }
        const Block& b = blocks_[c.old];
        remains_[c.old] = 1;
        remaining_key_[b.first] += key_[c.old];
        for (Section s = b.first; s < b.last; ++s) load_[s] += b.size;
        for (Section s = b.first + 1; s < b.last; ++s) ++crossing_[s];
    }
}

// Nothing of sections [first, last) lies below `upto` any more; then finds the new levels, there and elsewhere.
bool Skyline::lift(Section first, Section last, Units upto) {
    bool fits = true;
    for (Section s = first; s < last; ++s) touch(s);
    for (Section s = first; s < last && fits; ++s) {
        Span span = s == first ? alive(s) : starting(s);
        looked_at_ += span.end() - span.begin();
        for (int32_t u : span) {
            if (!remains_[u] || least_[u] >= upto) continue;
            set(least_[u], upto);
            unwitness(u);
            fits = fits && upto + blocks_[u].size <= height_;
        }
    }
    for (Section s : to_level_) {
        touched_[s] = 0;
        fits = fits && level_again(s, s >= first && s < last ? upto : level_[s]);
    }
    to_level_.clear();
    return fits;
}

// The sections that had block u as witness of their level must look for another.
void Skyline::unwitness(int32_t u) {
    Units left = witnessed_[u];
    for (Section s = blocks_[u].first; left > 0; ++s) {
        ++looked_at_;
        if (witness_[s] != u) continue;
        touch(s);
        --left;
    }
}

// No remaining block of s has its least below `atleast`; the first that has it right there ends the look.
bool Skyline::level_again(Section s, Units atleast) {
    Units level = height_;
    int32_t lowest = -1;
    for (int32_t u : alive(s)) {
        ++looked_at_;
        if (!remains_[u] || least_[u] >= level) continue;
        level = least_[u];
        lowest = u;
        if (level == atleast) break;
    }
    set(level_[s], level);
    witness(s, lowest);
    return level + load_[s] <= height_;
}

void Skyline::witness(Section s, int32_t block) {
    Units before = witness_[s];
    if (before == block) return;
    if (before >= 0) set(witnessed_[before], witnessed_[before] - 1);
    if (block >= 0) set(witnessed_[block], witnessed_[block] + 1);
    set(witness_[s], block);
}

uint64_t Skyline::fingerprint(Section first, Section last) const {
    uint64_t state = scramble((uint64_t{static_cast<uint32_t>(first)} << 32) + static_cast<uint32_t>(last));
    for (Section s = first; s < last; ++s) {
        uint64_t here = static_cast<uint64_t>(level_[s]) + (uint64_t{static_cast<uint32_t>(s)} << 40);
        here *= 0x9e3779b97f4a7c15u;
        state += remaining_key_[s] + (here ^ (here >> 29)) * 0xbf58476d1ce4e5b9u;
    }
    return state;
}

}  // namespace layermem::placing
