// Placed blocks in order of offset, and the gaps between them that a new block sees.
#pragma once

#include <cstdint>
#include <vector>

#include "planning/place_model.h"

namespace layermem::placing {

enum class Fit { lowest, tightest };  // first gap from below, or the gap that leaves least over

class Shelf {
public:
    explicit Shelf(const Problem& problem);

    // Offset at which `block` collides with nothing on the shelf.
    Units find(const Block& block, Fit fit) const;
    void put(const Block& block, Units offset);

    int64_t looked_at() const { return looked_at_; }  // entries visited so far: the steps of a search

private:
    struct Entry {
        Section first, last;
        Units bottom, top;
    };
    // A run of entries; a block that misses [first, last) skips it whole.
    struct Chunk {
        Section first, last;
        std::vector<Entry> entries;
    };
    static constexpr size_t kChunk = 64;

    std::vector<Chunk> chunks_;
    Units floor_;
    mutable int64_t looked_at_ = 0;
};

}  // namespace layermem::placing
