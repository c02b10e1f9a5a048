// Lower bounds of the recomputation of a chain, by Lagrangian relaxation of its budget.
//
// Every chain that fits ends with M(U) + peak(last segment) <= budget.  So for every price r >= 0 of a byte
//
//      time of a chain >= min over all chains of [sum recompute + r (inputs + sum kept + last peak)] - r budget
//
// and that minimum is a shortest path: one pass over the edges serves many prices r (multipliers).  Two passes meet:
//
//      {} -- prefix(L) -->  L  -- edge -->  L'  -- suffix(L') -->  V
//
//      through an edge   >= prefix(L) + edge + suffix(L') - r budget         one price for the whole chain
//      before L          >= prefix(L) - r (budget - peak(edge))              because the edge itself must fit
//      after L'          >= suffix(L') - r (budget - M(U) on L')
//
// Each bound is the highest over all multipliers.
#pragma once

#include <cstddef>
#include <vector>

#include "planning/recompute/types.h"

namespace layermem::planning::recompute {

class LagrangianBounds {
  public:
    // For `sets` lower sets, and chains of at most about `time` within `budget_bytes`.
    LagrangianBounds(int sets, Bytes budget_bytes, Quanta time);

    // Replaces the wide range of multipliers by a narrow one around `centre` (0 keeps it) and resets the paths.
    void refine_around(Multiplier centre);
    // Returns the multiplier at which chain_bound() is highest.
    Multiplier best_multiplier(Bytes inputs) const;

    // Suffixes are relaxed edge by edge with falling `from`, prefixes with rising `from`.
    void begin_suffixes() { fill(suffix_, sets_ - 1, 0); }
    void begin_prefixes(Bytes inputs) { fill(prefix_, 0, inputs); }
    void relax_suffix(SetIndex from, SetIndex to, Quanta recompute, Bytes bytes) {
        relax(&suffix_[at(from)], &suffix_[at(to)], recompute, bytes);
    }
    void relax_prefix(SetIndex from, SetIndex to, Quanta recompute, Bytes bytes) {
        relax(&prefix_[at(to)], &prefix_[at(from)], recompute, bytes);
    }

    // Return bounds of the recomputation of: any chain; the part after `set` with `kept` bytes kept; the part up to
    // `set` with at most `max_kept` bytes kept; any chain through an edge with these costs.
    Bound chain_bound(Bytes inputs) const { return suffix_bound(0, inputs); }
    Bound suffix_bound(SetIndex set, Bytes kept) const;
    Bound prefix_bound(SetIndex set, Bytes max_kept) const;
    Bound edge_bound(SetIndex from, SetIndex to, Quanta recompute, Bytes bytes) const;

  private:
    static constexpr int kMultipliers = 16;  // two cache lines per set; the loops over them become vector code

    size_t at(SetIndex set) const { return static_cast<size_t>(set) * kMultipliers; }
    void fill(std::vector<Bound>& paths, SetIndex set, Bytes kept);
    void relax(Bound* best, const Bound* next, Quanta recompute, Bytes bytes) const {
        const auto time = static_cast<Bound>(recompute);
        const auto size = static_cast<double>(bytes);
        for (int m = 0; m < kMultipliers; ++m) {
            const Bound path = time + multipliers_[m] * size + next[m];
            best[m] = path < best[m] ? path : best[m];
        }
    }

    const int sets_;
    const double budget_;  // bytes
    Multiplier multipliers_[kMultipliers];
    std::vector<Bound> suffix_, prefix_;  // per set and multiplier
};

}  // namespace layermem::planning::recompute
