// The gap query of greedy placement, which is where its time goes: a deep net has thousands of residencies, each query
// would inspect all placed ones, and there are ten passes.  Two measures keep the cost low: chunks are skipped by their
// summaries, and short residencies search the list of their own slice of time only.
#include "planning/placement/offset_index.h"

#include <algorithm>
#include <limits>

namespace layermem::planning::placement {

void OffsetList::Chunk::summarize() {
    // Tops are accumulated by rising bottom: a gap is what no entry so far covers.
    begin = earliest = std::numeric_limits<Section>::max();
    end = latest = 0;
    top = entries.front().bottom;
    widest_gap = 0;
    for (const Entry& e : entries) {
        begin = std::min(begin, e.begin);
        end = std::max(end, e.end);
        latest = std::max(latest, e.begin);
        earliest = std::min(earliest, e.end);
        widest_gap = std::max(widest_gap, e.bottom - top);
        top = std::max(top, e.top);
    }
}

// Makes one pass by rising offset over the entries that overlap in time.  `top` is the highest top so far, so the gap
// below an entry reaches from `top` to its bottom.
Granules OffsetList::find_offset(const Residency& residency, Granules floor, Fit fit, int64_t& steps) const {
    Granules top = floor;
    Granules chosen = -1;
    Granules least_rest = std::numeric_limits<Granules>::max();
    for (const Chunk& chunk : chunks_) {
        ++steps;
        if (chunk.begin >= residency.end || chunk.end <= residency.begin) continue;
        // If every entry counts, the summary covers all gaps: those within, and the one below the first entry.
        bool all_overlap = chunk.latest < residency.end && chunk.earliest > residency.begin;
        if (all_overlap && std::max(chunk.widest_gap, chunk.entries.front().bottom - top) < residency.size) {
            top = std::max(top, chunk.top);
            continue;
        }
        steps += static_cast<int64_t>(chunk.entries.size());
        for (const Entry& e : chunk.entries) {
            if (e.begin >= residency.end || e.end <= residency.begin) continue;
            Granules rest = e.bottom - top - residency.size;
            if (rest >= 0 && rest < least_rest) {
                if (fit == Fit::first || rest == 0) return top;
                least_rest = rest;
                chosen = top;
            }
            top = std::max(top, e.top);
        }
    }
    return chosen >= 0 ? chosen : top;
}

// A full chunk is split in halves, like a node of a B-tree.
void OffsetList::insert(const Residency& residency, Granules offset, int64_t& steps) {
    steps += kMaxChunkEntries;  // the price of the insertion and the summary, whatever the size of the chunk
    Entry entry{residency.begin, residency.end, offset, offset + residency.size};
    auto is_below = [](const Entry& e, Granules at) { return e.bottom < at; };
    auto ends_below = [](const Chunk& c, Granules at) { return c.entries.back().bottom < at; };
    auto chunk = std::lower_bound(chunks_.begin(), chunks_.end(), offset, ends_below);
    if (chunks_.empty()) {
        chunks_.emplace_back(std::vector<Entry>{entry});
        return;
    }
    // The first chunk that ends at or above the offset takes the entry; if none does, the last one.
    if (chunk == chunks_.end()) --chunk;
    auto& entries = chunk->entries;
    entries.insert(std::lower_bound(entries.begin(), entries.end(), offset, is_below), entry);
    if (entries.size() < kMaxChunkEntries) {
        chunk->summarize();
        return;
    }
    Chunk upper({entries.begin() + kMaxChunkEntries / 2, entries.end()});
    entries.erase(entries.begin() + kMaxChunkEntries / 2, entries.end());
    chunk->summarize();
    chunks_.insert(chunk + 1, std::move(upper));
}

OffsetIndex::OffsetIndex(const Problem& problem) : floor_(problem.floor) {
    // Slices of equal width, as many as useful: below the least width the lists would be nearly empty.
    slice_width_ = std::max(kMinSliceWidth, (problem.sections + kMaxSlices - 1) / kMaxSlices);
    slices_.resize((problem.sections + slice_width_ - 1) / slice_width_);
    for (size_t i = 0; i < problem.fixed.size(); ++i) {
        // A residency that ends at or below the floor cannot collide with one that lies above it.
        if (problem.fixed_offset[i] + problem.fixed[i].size > floor_) insert(problem.fixed[i], problem.fixed_offset[i]);
    }
}

Granules OffsetIndex::find_offset(const Residency& residency, Fit fit) const {
    Section slice = residency.begin / slice_width_;
    bool in_one_slice = (residency.end - 1) / slice_width_ == slice;
    return (in_one_slice ? slices_[slice] : whole_).find_offset(residency, floor_, fit, steps_);
}

void OffsetIndex::insert(const Residency& residency, Granules offset) {
    // A residency is in the list of each slice that it touches, so a query of one slice misses none.
    whole_.insert(residency, offset, steps_);
    for (Section slice = residency.begin / slice_width_; slice <= (residency.end - 1) / slice_width_; ++slice) {
        slices_[slice].insert(residency, offset, steps_);
    }
}

}  // namespace layermem::planning::placement
