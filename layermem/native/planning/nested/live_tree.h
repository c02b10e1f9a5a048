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
        nodes_.assign(2 * static_cast<size_t>(size_), {});
    }

    // To every slot of [begin, end).
    void add(Slot begin, Slot end, Bytes bytes) {
        if (begin >= end || bytes == 0) return;
        Slot low = begin + size_, high = end + size_;
        for (; low < high; low /= 2, high /= 2) {
            if (low % 2) add_below(low++, bytes);
            if (high % 2) add_below(--high, bytes);
        }
        update_above(begin + size_, end - 1 + size_);
    }

    Bytes max() const { return nodes_[1].most; }

    // Over [begin, end), which is not empty.
    Bytes max(Slot begin, Slot end) const {
        Slot low = begin + size_, high = end - 1 + size_;  // both inclusive; maxima below them, without what lies above
        Bytes left = nodes_[low].most, right = nodes_[high].most;
        while (low / 2 != high / 2) {
            if (low % 2 == 0) left = std::max(left, nodes_[low + 1].most);
            if (high % 2) right = std::max(right, nodes_[high - 1].most);
            low /= 2;
            high /= 2;
            left += nodes_[low].added;
            right += nodes_[high].added;
        }
        Bytes most = std::max(left, right);
        for (Slot node = low / 2; node; node /= 2) most += nodes_[node].added;
        return most;
    }

    // A slot that has the maximum.
    Slot argmax() const {
        Slot node = 1;
        while (node < size_) {
            node *= 2;
            if (nodes_[node].most < nodes_[node + 1].most) ++node;
        }
        return node - size_;
    }

  private:
    struct Node {
        Bytes most = 0;   // of all that was added at the node and below it; leaves are the slots
        Bytes added = 0;  // at the node itself
    };
    void add_below(Slot node, Bytes bytes) {
        nodes_[node].most += bytes;
        nodes_[node].added += bytes;
    }
    // Whether the maximum of a node changed.
    bool update(Slot node) {
        const Slot below = 2 * node;
        const Bytes most = std::max(nodes_[below].most, nodes_[below + 1].most) + nodes_[node].added;
        const bool changed = most != nodes_[node].most;
        nodes_[node].most = most;
        return changed;
    }
    // From the first and the last leaf of a range up to where their paths meet, then as far as anything changes.
    void update_above(Slot first, Slot last) {
        for (first /= 2, last /= 2; first != last; first /= 2, last /= 2) {
            update(first);
            update(last);
        }
        if (first) update(first);
        for (first /= 2; first && update(first);) first /= 2;
    }

    Slot size_ = 1;            // a power of two
    std::vector<Node> nodes_;  // the root is at 1, and below node n are 2 n and 2 n + 1
};

}  // namespace layermem::planning::nested
