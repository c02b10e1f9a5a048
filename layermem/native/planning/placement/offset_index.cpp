#include "planning/placement/offset_index.h"

#include <algorithm>
#include <limits>

namespace layermem::placing {

void Pile::Chunk::sum_up() {
    first = earliest = std::numeric_limits<Section>::max();
    last = latest = 0;
    top = entries.front().bottom;
    widest_hole = 0;
    for (const Entry& e : entries) {
        first = std::min(first, e.first);
        last = std::max(last, e.last);
        latest = std::max(latest, e.first);
        earliest = std::min(earliest, e.last);
        widest_hole = std::max(widest_hole, e.bottom - top);
        top = std::max(top, e.top);
    }
}

Units Pile::find(const Block& block, Units floor, Fit fit, int64_t& looked_at) const {
    Units top = floor, chosen = -1, least_left = std::numeric_limits<Units>::max();
    for (const Chunk& chunk : chunks_) {
        ++looked_at;
        if (chunk.first >= block.last || chunk.last <= block.first) continue;
        bool all_meet = chunk.latest < block.last && chunk.earliest > block.first;
        if (all_meet && std::max(chunk.widest_hole, chunk.entries.front().bottom - top) < block.size) {
            top = std::max(top, chunk.top);
            continue;
        }
        looked_at += static_cast<int64_t>(chunk.entries.size());
        for (const Entry& e : chunk.entries) {
            if (e.first >= block.last || e.last <= block.first) continue;
            Units left = e.bottom - top - block.size;
            if (left >= 0 && left < least_left) {
                if (fit == Fit::lowest || left == 0) return top;
                least_left = left;
                chosen = top;
            }
            top = std::max(top, e.top);
        }
    }
    return chosen >= 0 ? chosen : top;
}

void Pile::put(const Block& block, Units offset, int64_t& looked_at) {
    looked_at += kChunk;
    Entry entry{block.first, block.last, offset, offset + block.size};
    auto below = [](const Entry& e, Units at) { return e.bottom < at; };
    auto ends_below = [](const Chunk& c, Units at) { return c.entries.back().bottom < at; };
    auto chunk = std::lower_bound(chunks_.begin(), chunks_.end(), offset, ends_below);
    if (chunks_.empty()) {
        chunks_.emplace_back(std::vector<Entry>{entry});
        return;
    }
    if (chunk == chunks_.end()) --chunk;
    auto& entries = chunk->entries;
    entries.insert(std::lower_bound(entries.begin(), entries.end(), offset, below), entry);
    if (entries.size() < kChunk) {
        chunk->sum_up();
        return;
    }
    Chunk upper({entries.begin() + kChunk / 2, entries.end()});
    entries.erase(entries.begin() + kChunk / 2, entries.end());
    chunk->sum_up();
    chunks_.insert(chunk + 1, std::move(upper));
}

Shelf::Shelf(const Problem& problem) : floor_(problem.floor) {
    width_ = std::max(kLeastWidth, (problem.sections + kMostSlices - 1) / kMostSlices);
    slices_.resize((problem.sections + width_ - 1) / width_);
    for (size_t i = 0; i < problem.pins.size(); ++i) {
        if (problem.pin_offset[i] + problem.pins[i].size > floor_) put(problem.pins[i], problem.pin_offset[i]);
    }
}

Units Shelf::find(const Block& block, Fit fit) const {
    Section slice = block.first / width_;
    const Pile& pile = (block.last - 1) / width_ == slice ? slices_[slice] : whole_;
    return pile.find(block, floor_, fit, looked_at_);
}

void Shelf::put(const Block& block, Units offset) {
    whole_.put(block, offset, looked_at_);
    for (Section slice = block.first / width_; slice <= (block.last - 1) / width_; ++slice) {
        slices_[slice].put(block, offset, looked_at_);
    }
}

}  // namespace layermem::placing
