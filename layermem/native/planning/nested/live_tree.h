// Bytes per slot, with additions to ranges of slots and the maximum over all, in O(log slots).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "planning/types.h"

namespace layermem::planning::nested {

using Slot = int32_t;

// The leaves of the tree are blocks of neighbouring slots: an op changes few blocks, which are few cache lines.
class LiveTree {
  public:
    static constexpr Slot kBlock = 16;  // slots

    explicit LiveTree(Slot slots) {
        while (size_ < (slots + kBlock - 1) / kBlock) size_ *= 2;
        nodes_.assign(2 * static_cast<size_t>(size_), {});
        slots_.assign(static_cast<size_t>(size_) * kBlock, 0);
    }

    // Sets the bytes of each slot from the first one on; those of others are 0.
    explicit LiveTree(const std::vector<Bytes>& bytes) : LiveTree(static_cast<Slot>(bytes.size())) {
        std::copy(bytes.begin(), bytes.end(), slots_.begin());
        for (Slot leaf = size_; leaf < 2 * size_; ++leaf) update_leaf(leaf);
        for (Slot node = size_ - 1; node; --node) update(node);
    }

    // Adds to every slot of [begin, end).
    void add(Slot begin, Slot end, Bytes bytes) {
        if (begin >= end || bytes == 0) return;
        const Slot first = begin / kBlock + size_, last = (end - 1) / kBlock + size_;
        Slot low = first, high = last + 1;  // leaves that are covered whole
        if (first == last && end - begin < kBlock) {
            add_to_slots(begin, end, bytes);
            low = high;
        } else {
            if (begin % kBlock) add_to_slots(begin, (low++ - size_ + 1) * kBlock, bytes);
            if (end % kBlock) add_to_slots((--high - size_) * kBlock, end, bytes);
        }
        for (; low < high; low /= 2, high /= 2) {
            if (low % 2) add_below(low++, bytes);
            if (high % 2) add_below(--high, bytes);
        }
        update_above(first, last);
    }

    void add(Slot slot, Bytes bytes) {
        if (bytes == 0) return;
        add_to_slots(slot, slot + 1, bytes);
        update_above(slot / kBlock + size_, slot / kBlock + size_);
    }

    void add_to_all(Bytes bytes) { add_below(1, bytes); }

    Bytes max() const { return nodes_[1].most; }

    // Returns the maximum over [begin, end), which is not empty.
    Bytes max(Slot begin, Slot end) const {
        Slot low = begin / kBlock + size_, high = (end - 1) / kBlock + size_;  // both inclusive
        // Maxima of the subtrees, without additions at nodes above them.
        Bytes left = max_of_slots(begin, std::min(end, (low - size_ + 1) * kBlock)) + nodes_[low].added;
        if (low != high) {
            Bytes right = max_of_slots((high - size_) * kBlock, end) + nodes_[high].added;
            while (low / 2 != high / 2) {
                if (low % 2 == 0) left = std::max(left, nodes_[low + 1].most);
                if (high % 2) right = std::max(right, nodes_[high - 1].most);
                low /= 2;
                high /= 2;
                left += nodes_[low].added;
                right += nodes_[high].added;
            }
            left = std::max(left, right);
        }
        for (Slot node = low / 2; node; node /= 2) left += nodes_[node].added;
        return left;
    }

    // Returns the first slot with the maximum.
    Slot argmax() const {
        Slot node = 1;
        while (node < size_) {
            node *= 2;
            if (nodes_[node].most < nodes_[node + 1].most) ++node;
        }
        const auto first = slots_.begin() + static_cast<std::ptrdiff_t>(node - size_) * kBlock;
        return static_cast<Slot>(std::max_element(first, first + kBlock) - slots_.begin());
    }

  private:
    struct Node {
        Bytes most = 0;   // of all that was added at the node and below it
        Bytes added = 0;  // at the node itself
    };
    Bytes max_of_slots(Slot begin, Slot end) const {
        return *std::max_element(slots_.begin() + begin, slots_.begin() + end);
    }
    // Slots of one block.
    void add_to_slots(Slot begin, Slot end, Bytes bytes) {
        for (Slot slot = begin; slot < end; ++slot) slots_[slot] += bytes;
        update_leaf(begin / kBlock + size_);
    }
    void update_leaf(Slot leaf) {
        const Bytes* slots = slots_.data() + static_cast<size_t>(leaf - size_) * kBlock;
        Bytes most = slots[0];
        for (Slot i = 1; i < kBlock; ++i) most = std::max(most, slots[i]);
        nodes_[leaf].most = most + nodes_[leaf].added;
    }
    void add_below(Slot node, Bytes bytes) {
        nodes_[node].most += bytes;
        nodes_[node].added += bytes;
    }
    // Returns whether the maximum of a node changed.
    bool update(Slot node) {
        const Slot below = 2 * node;
        const Bytes most = std::max(nodes_[below].most, nodes_[below + 1].most) + nodes_[node].added;
        const bool changed = most != nodes_[node].most;
        nodes_[node].most = most;
        return changed;
    }
    // Updates from the first and the last leaf of a range to where their paths meet, then as far as anything changes.
    void update_above(Slot first, Slot last) {
        for (first /= 2, last /= 2; first != last; first /= 2, last /= 2) {
            update(first);
            update(last);
        }
        if (first) update(first);
        for (first /= 2; first && update(first);) first /= 2;
    }

    Slot size_ = 1;             // leaves, a power of two
    std::vector<Node> nodes_;   // the root is at 1, and below node n are 2 n and 2 n + 1
    std::vector<Bytes> slots_;  // without the additions at nodes
};

}  // namespace layermem::planning::nested
