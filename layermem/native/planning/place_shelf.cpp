#include "planning/place_shelf.h"

#include <algorithm>
#include <limits>

namespace layermem::placing {

Shelf::Shelf(const Problem& problem) : floor_(problem.floor) {
    for (size_t i = 0; i < problem.pins.size(); ++i) put(problem.pins[i], problem.pin_offset[i]);
}

Units Shelf::find(const Block& block, Fit fit) const {
    Units top = floor_, chosen = -1, least_left = std::numeric_limits<Units>::max();
    for (const Chunk& chunk : chunks_) {
        ++looked_at_;
        if (chunk.first >= block.last || chunk.last <= block.first) continue;
        looked_at_ += static_cast<int64_t>(chunk.entries.size());
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

void Shelf::put(const Block& block, Units offset) {
    Entry entry{block.first, block.last, offset, offset + block.size};
    auto below = [](const Entry& e, Units at) { return e.bottom < at; };
    auto chunk = std::find_if(chunks_.begin(), chunks_.end(),
                              [&](const Chunk& c) { return c.entries.back().bottom >= offset; });
    if (chunk == chunks_.end()) {
        if (chunks_.empty()) chunks_.push_back({block.first, block.last, {}});
        chunk = chunks_.end() - 1;
    }
    auto& entries = chunk->entries;
    entries.insert(std::lower_bound(entries.begin(), entries.end(), offset, below), entry);
    chunk->first = std::min(chunk->first, block.first);
    chunk->last = std::max(chunk->last, block.last);
    if (entries.size() < kChunk) return;

    Chunk upper{0, 0, {entries.begin() + kChunk / 2, entries.end()}};
    entries.resize(kChunk / 2);
    for (Chunk* c : {&*chunk, &upper}) {
        c->first = c->entries.front().first;
        c->last = c->entries.front().last;
        for (const Entry& e : c->entries) {
            c->first = std::min(c->first, e.first);
            c->last = std::max(c->last, e.last);
        }
    }
    chunks_.insert(chunk + 1, std::move(upper));
}

}  // namespace layermem::placing
