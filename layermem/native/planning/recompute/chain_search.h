// One search: the cheapest chain within a budget and within a time, over the lower sets up to one tier.
//
//   state    (L, t, m): the first segments of some chain end in L, replaying them takes t, M(U) = m bytes are kept
//   step     to L' > L, if m + peak(L, L') <= budget:  t += recompute(L, L'),  m += kept(L, L')
//   front    per L the states that no other beats in both t and m
//   answer   the state of V with the least t (Objective::time), or the largest (Objective::memory: the paper's
//            memory-centric rule, whose coarse segments profit most from liveness); among equals the least m
//
//      m ^ .                        Sets are visited by size: all states that lead to L are known when L's turn comes.
//        |  . .     front of L      A state goes when t + what must follow (lagrangian_bounds.h) is above the time
//        |      . .                 allowed.  So does an arc that no chain in time can use, most of them by their
//        +-----------> t            bounds alone; an arc is settled when a state is about to take it.
#pragma once
#include <optional>
#include <vector>

#include "planning/recompute/lagrangian_bounds.h"
#include "planning/recompute/reachability.h"

namespace layermem::planning {

enum class Objective { time, memory };

// A question: chains of sets of the tiers up to `upto` that keep within `budget` bytes.
struct Question {
    Family upto;
    Bytes budget;
    Objective objective;
};

class Search {
  public:
    // `allowed`: no chain above it is of interest.  `inputs` bytes are resident from the start.
    Search(const LowerSets& sets, Arcs& arcs, Bytes inputs, const Question& question, Ticks allowed, Watch& watch);

    // The best chain (indices of sets, without {}), if there is one within the time allowed.
    std::optional<std::vector<int>> best();
    // Some chain within the time allowed, found with at most `width` states per set.
    std::optional<std::vector<int>> quick(size_t width);
    // No chain takes less, as far as was looked; and whether segments alone, within the time, do not reach V.
    double bound() const { return reach_.hopeless() || !by_time() ? 0 : prices_.whole(inputs_); }
    bool out_of_reach() const { return reach_.hopeless(); }
    // Less time is allowed from now on: that of a chain which is known.
    void allow(Ticks time);

  private:
    struct Label {
        Ticks key;   // time, negated when the largest is wanted
        Bytes kept;
    };
    using Front = std::vector<Label>;  // by growing key and falling bytes
    struct Step {  // an arc, from its target
        int from;
        Arc* arc;
        Ticks added(bool by_time) const { return by_time ? arc->recompute : -static_cast<Ticks>(arc->recompute); }
    };

    bool by_time() const { return question_.objective == Objective::time; }
    Bytes charged(int to, Bytes kept, Bytes peak) const { return to == last_ ? peak : kept; }
    template <class Visit>
    void each_arc(int from, Visit visit);
    bool survives(int from, int to, const Box& cost, Bytes kept) const;
    void price_arcs();
    void gather_survivors();
    void sift();
    std::optional<std::vector<int>> run(size_t width);
    void arrive(int to, std::vector<Front>& fronts);
    void leave_late_ones(int set, Front& front) const;
    void thin(int set, Front& front, size_t width) const;
    std::vector<int> trace(const std::vector<Front>& fronts) const;

    const LowerSets& sets_;
    Arcs& arcs_;
    const Bytes inputs_;
    const Question question_;
    const int last_;  // V
    Ticks allowed_;
    Watch& watch_;
    const Reach reach_;
    Prices prices_;
    bool hopeless_;
    std::vector<std::vector<Step>> steps_;  // per set, the arcs to it that a chain in time may use
    std::vector<Bytes> cheapest_;           // scratch of arrive(): per key, the least kept
    std::vector<int32_t> touched_;          // its keys
};

}  // namespace layermem::planning
