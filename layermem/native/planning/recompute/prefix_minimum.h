// The least value of a prefix of a table whose entries only fall: a Fenwick tree of minima.
//
//     tree_[i] covers the `i & -i` entries that end at i        set, min: O(log size)
//
// Source: Fenwick, "A New Data Structure for Cumulative Frequency Tables", 1994.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace layermem::planning::recompute {

template <class T>
class PrefixMinimum {
  public:
    // Sets `size` entries to `most`.
    void assign(size_t size, T most) {
        most_ = most;
        tree_.assign(size + 1, most);
    }
    // Lowers the entry at `index` to `value`; a higher value changes nothing.
    void lower(size_t index, T value) {
        for (size_t i = index + 1; i < tree_.size() && value < tree_[i]; i += i & -i) tree_[i] = value;
    }
    // Returns the least of the entries up to and including `index`.
    T min(size_t index) const {
        T least = most_;
        for (size_t i = index + 1; i > 0; i -= i & -i) least = std::min(least, tree_[i]);
        return least;
    }
    // Sets the entry at `index` to `most` again.  The minima are right once this is done for all lowered entries.
    void clear(size_t index) {
        for (size_t i = index + 1; i < tree_.size() && tree_[i] != most_; i += i & -i) tree_[i] = most_;
    }

  private:
    T most_{};
    std::vector<T> tree_;
};

}  // namespace layermem::planning::recompute
