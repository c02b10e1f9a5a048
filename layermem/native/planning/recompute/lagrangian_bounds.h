// Lower bounds of what a chain recomputes, from prices on memory.
//
// Whatever a chain does, it ends with M(U) + peak(last segment) <= budget.  So for every price r of a byte
//
//      time of a chain >= min over all chains of [sum recompute + r (inputs + sum kept + last peak)] - r budget
//
// and that minimum is a shortest path: one pass over the arcs serves a whole row of prices.  The passes meet:
//
//      {} ---- to(L) ---->  L  -- arc -->  L'  ---- from(L') ---->  V
//
//      through(arc)   >= to(L) + arc + from(L') - r budget                      at one price for the whole chain
//      time before L  >= to(L) - r (budget - peak(arc))                         for the arc itself must fit
//      time after L'  >= from(L') - r (budget - M(U) on L')
#pragma once
#include <vector>

#include "planning/step_graph.h"

namespace layermem::planning {

class Prices {
  public:
    // For `sets` lower sets, and ways of at most about `time` within `budget`.
    Prices(int sets, Bytes budget, Ticks time);

    // A row of prices that are close together around `centre` (0 leaves the wide row of the start), and no ways yet.
    void set_row(double centre);
    // The price at which the bound of the whole is highest.
    double best(Bytes inputs) const;

    // Ways from V, to be told by falling `from`; and ways from {}, by rising `from`.
    void begin_at_end() { fill(from_, sets_ - 1, 0); }
    void begin_at_start(Bytes inputs) { fill(to_, 0, inputs); }
    void add_before(int from, int to, Ticks recompute, Bytes bytes) { relax(&from_[at(from)], &from_[at(to)], recompute, bytes); }
    void add_after(int from, int to, Ticks recompute, Bytes bytes) { relax(&to_[at(to)], &to_[at(from)], recompute, bytes); }

    double whole(Bytes inputs) const { return rest(0, inputs); }  // no chain takes less
    double rest(int set, Bytes kept) const;                       // nor does any way on from here
    double before(int set, Bytes most_kept) const;                // nor any to here with no more than that kept
    // Nor any through an arc with these costs.
    double through(int from, int to, Ticks recompute, Bytes bytes) const;

  private:
    static constexpr int kPrices = 16;
    size_t at(int set) const { return static_cast<size_t>(set) * kPrices; }
    void fill(std::vector<double>& ways, int set, Bytes kept);
    void relax(double* best, const double* next, Ticks recompute, Bytes bytes) const {
        const double time = static_cast<double>(recompute), size = static_cast<double>(bytes);
        for (int p = 0; p < kPrices; ++p) {
            const double way = time + prices_[p] * size + next[p];
            best[p] = way < best[p] ? way : best[p];
        }
    }

    const int sets_;
    const double budget_;
    double prices_[kPrices];
    std::vector<double> from_, to_;  // per set and price
};

}  // namespace layermem::planning
