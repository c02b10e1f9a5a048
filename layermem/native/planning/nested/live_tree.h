// Bytes per slot: additions to ranges of slots, and the maximum over all, in O(log slots).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "planning/types.h"

namespace layermem::planning::nested {

using Slot = int32_t;

class LiveTree {
  public:
    explicit LiveTree(Slot slots) {
        while (size_ < slots) size_ *= 2;
        most_.assign(2 * static_cast<size_t>(size_), 0);
        added_.assign(2 * static_cast<size_t>(size_), 0);
    }

    // To every slot of [begin, end).
    void add(Slot begin, Slot end, Bytes bytes) {
        if (begin >= end || bytes == 0) return;
        Slot low = begin + size_, high = end + size_;
        for (; low < high; low /= 2, high /= 2) {
            if (low % 2) add_below(low++, bytes);
            if (high % 2) add_below(--high, bytes);
        }
        update_above(begin + size_);
        update_above(end + size_ - 1);
    }

    Bytes max() const { return most_[1]; }

    // Over [begin, end), which is not empty.
    Bytes max(Slot begin, Slot end) const {
        Slot low = begin + size_, high = end - 1 + size_;  // both inclusive; maxima below them, without what lies above
        Bytes left = most_[low], right = most_[high];
        while (low / 2 != high / 2) {
            if (low % 2 == 0) left = std::max(left, most_[low + 1]);
            if (high % 2) right = std::max(right, most_[high - 1]);
            low /= 2;
            high /= 2;
            left += added_[low];
            right += added_[high];
        }
        Bytes most = std::max(left, right);
        for (Slot node = low / 2; node; node /= 2) most += added_[node];
        return most;
    }

    // A slot that has the maximum.
    Slot argmax() const {
        Slot node = 1;
        while (node < size_) {
            node *= 2;
            if (most_[node] < most_[node + 1]) ++node;
        }
        return node - size_;
    }

  private:
    // most_[n] is the maximum below node n of all that was added there and at n itself; leaves are the slots.
    void add_below(Slot node, Bytes bytes) {
        most_[node] += bytes;
        added_[node] += bytes;
    }
    void update_above(Slot node) {
        for (node /= 2; node; node /= 2) {
            const Slot below = 2 * node;
            most_[node] = std::max(most_[below], most_[below + 1]) + added_[node];
        }
    }

    Slot size_ = 1;  // a power of two
    std::vector<Bytes> most_, added_;
};

}  // namespace layermem::planning::nested
