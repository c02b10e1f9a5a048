// A set of items as bits, which visits items by rising or falling number.
#pragma once

#include <cstdint>
#include <vector>

namespace layermem::planning::nested {

class ItemSet {
  public:
    void clear(size_t items) { words_.assign((items + 63) / 64, 0); }
    void fill(size_t items) {
        clear(items);
        for (size_t item = 0; item < items; ++item) add(static_cast<int32_t>(item));
    }
    void add(int32_t item) { words_[item >> 6] |= bit(item); }
    void remove(int32_t item) { words_[item >> 6] &= ~bit(item); }

    // Visits items by rising number; `visit` may remove the item that it is given.
    template <class Visit>
    void for_each(Visit visit) const {
        for (size_t k = 0; k < words_.size(); ++k)
            for (uint64_t word = words_[k]; word; word &= word - 1)
                visit(static_cast<int32_t>(k * 64) + __builtin_ctzll(word));
    }
    // Removes the items of [first, end), from the lowest on; `visit` may add items above the one that it is given.
    template <class Visit>
    void take_rising(int32_t first, int32_t end, Visit visit) {
        for (int32_t k = first >> 6; k * 64 < end; ++k) {
            const uint64_t from = k == first >> 6 ? ~uint64_t{0} << (first & 63) : ~uint64_t{0};
            while (const uint64_t word = words_[k] & from & below(end - k * 64)) {
                const int32_t item = k * 64 + __builtin_ctzll(word);
                remove(item);
                visit(item);
            }
        }
    }
    // Removes the items below `end`, from the highest on; `visit` may add items below the one that it is given.
    template <class Visit>
    void take_falling(int32_t end, Visit visit) {
        for (int32_t k = (end - 1) >> 6; k >= 0; --k) {
            while (const uint64_t word = words_[k] & below(end - k * 64)) {
                const int32_t item = k * 64 + 63 - __builtin_clzll(word);
                remove(item);
                visit(item);
            }
        }
    }

  private:
    static uint64_t bit(int32_t item) { return uint64_t{1} << (item & 63); }
    static uint64_t below(int32_t count) { return count < 64 ? (uint64_t{1} << count) - 1 : ~uint64_t{0}; }
    std::vector<uint64_t> words_;
};

}  // namespace layermem::planning::nested
