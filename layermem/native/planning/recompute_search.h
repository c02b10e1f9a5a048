// One search: the cheapest chain within a budget and within a time, over the lower sets up to one tier.
//
//   state    (L, t, m): the first segments of some chain end in L, replaying them takes t, M(U) = m bytes are kept
//   step     to L' > L, if m + peak(L, L') <= budget:  t += recompute(L, L'),  m += kept(L, L')
//   front    per L the states that no other beats in both t and m
//   answer   the state of V with the least t (Objective::time), or the largest (Objective::memory: the paper's
//            memory-centric rule, whose coarse segments profit most from liveness); among equals the least m
//
//      m ^ .                        Sets are visited by size, so that every state of L is known before L is left.
//        |  . .     front of L      A state goes when t + bound(L, m) is above the time allowed.  The bound: whatever
//        |      . .                 follows must end with M(U) + peak(last segment) <= budget, so for every price r
//        +-----------> t            of a byte   rest >= min over chains of [sum recompute + r (sum kept + last peak)]
//                                           + r (m - budget);   one backward pass per price, the best price counts.
#pragma once
#include <optional>
#include <vector>

#include "planning/recompute_arcs.h"

namespace layermem {

enum class Objective { time, memory };

class Search {
  public:
    // Bytes that V's arcs need at least: `inputs` are resident from the start.
    Search(const LowerSets& sets, Arcs& arcs, Bytes inputs, Family upto, Bytes budget, Ticks allowed, Watch& watch);

    bool hopeless() const { return hopeless_; }  // no chain of these tiers, this budget and this time
    // The best chain (indices of sets, without {}), if there is one within the time allowed.
    std::optional<std::vector<int>> best(Objective objective);
    // Some chain within the time allowed, found with at most `width` states per set.
    std::optional<std::vector<int>> quick(size_t width);
    void allow(Ticks time) { allowed_ = std::min(allowed_, time); }
    // A chain of least kept bytes on every set it passes; it fits if any does.
    std::vector<int> leanest() const;

  private:
    struct Label {
        Ticks key;   // time, negated when the largest is wanted
        Bytes kept;
        int set, parent;  // where it comes from: a set and a position in its front
    };
    struct Step {
        int to;
        Ticks recompute;
        Bytes kept, peak;
    };

    void gather(Arcs& arcs, Family upto, Watch& watch);
    void drop_dead_ends();
    void price();
    double rest(int set, Bytes kept) const;
    std::optional<std::vector<int>> run(Objective objective, size_t width);
    void keep_front(std::vector<Label>& labels) const;
    void thin(int set, std::vector<Label>& front, size_t width) const;
    std::vector<int> trace(const std::vector<std::vector<Label>>& fronts) const;

    const LowerSets& sets_;
    const Bytes inputs_, budget_;
    Ticks allowed_;
    Watch& watch_;
    bool hopeless_ = false;
    std::vector<std::vector<Step>> steps_;   // per set, those that can be part of a chain that fits
    std::vector<Bytes> least_;               // per set, the least M(U) of any chain to it
    std::vector<int> leanest_from_;
    std::vector<double> prices_;             // time per byte
    std::vector<std::vector<double>> rests_; // per price and set
};

}  // namespace layermem
