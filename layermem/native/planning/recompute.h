// The dynamic program over chains of lower sets: least recomputation within a budget, and the least budget.
//
//   state    (L, t, m): the first segments of some chain end in L, replaying them takes t, M(U) = m bytes are kept
//   step     to L' > L, if m + peak(L, L') <= budget:  t += recompute(L, L'),  m += kept(L, L')
//   front    per L the states that no other beats in both t and m
//   answer   the state of V with the least t (Objective::time), or with the largest (Objective::memory: the
//            paper's memory-centric rule, whose coarse segments profit most from liveness); ties: least m
//
//      m ^ .                        Sets are visited by size, so that every state of L is known before L is left.
//        |  . .     front of L      A state is dropped when t + (a lower bound of what is still to come) is above
//        |      . .                 the best plan known.  The bound is the same program with every m replaced by
//        +-----------> t            the least m that any chain can have at L.
//
// Families are solved from the smallest up, each result bounding the next.  What segments cost is computed when it
// is first wanted and kept for all later budgets.  Source: Kusumoto et al. 2019, with sets sorted by size; the model
// of a segment is in liveness.h.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "planning/liveness.h"

namespace layermem {

enum class Objective { time, memory };

// Says when to stop: at a deadline (the best plan so far is the answer), or by an exception of `interrupt`.
class Watch {
  public:
    explicit Watch(double seconds = 0, std::function<void()> interrupt = {});  // 0: no limit
    void tick();     // cheap; throws TimeUp when late, and whatever `interrupt` throws
    double seconds() const;

    struct TimeUp {};

  private:
    using Clock = std::chrono::steady_clock;
    Clock::time_point begin_, next_look_;
    double limit_;
    std::function<void()> interrupt_;
    unsigned count_ = 0;
};

struct ChainPlan {
    std::vector<int> chain;   // indices of sets, without {}, ending in V
    Ticks recompute = 0;
    Bytes kept = 0;           // M(U_k)
    Bytes peak = 0;           // by the model: max over segments of M(U_{i-1}) + peak
    bool proven = false;      // no chain of the family does better
};

class LowerSetPlanner {
  public:
    LowerSetPlanner(StepGraph graph, Family family, Model model, size_t max_sets);

    // The best chain within `budget` bytes, or none.  Without one, `proven_infeasible()` tells if none exists.
    std::optional<ChainPlan> solve(Bytes budget, Objective objective, Watch& watch);
    // A chain of least peak; `proven` if no chain of the family needs less.
    ChainPlan minimum(Watch& watch);
    bool proven_infeasible() const { return proven_infeasible_; }

    const StepGraph& graph() const { return graph_; }
    const LowerSets& sets() const { return sets_; }
    SegmentCosts& costs() { return costs_; }
    Model model() const { return model_; }
    size_t segments_known() const { return segments_known_; }

  private:
    struct Arc {
        int to;
        Segment segment;
    };
    struct Arcs {
        std::vector<Arc> list;
        Bytes complete_to = kNothing;  // every arc whose peak_bound is not above this is in the list
    };
    struct Label {
        Ticks key;    // time, negated when the largest is wanted
        Bytes kept;
        int set, parent;      // where it comes from: set and position in its front
    };
    static constexpr Bytes kNothing = std::numeric_limits<Bytes>::min();
    static constexpr Bytes kUnreached = std::numeric_limits<Bytes>::max() / 4;
    static constexpr Ticks kNoTime = std::numeric_limits<Ticks>::max() / 4;

    const std::vector<Arc>& arcs(int from, Family tier, Bytes limit, Watch& watch);
    template <class Visit>
    void each_arc(int from, Family upto, Bytes limit, Watch& watch, Visit visit);
    bool in(int set, Family upto) const { return sets_.tier(set) <= upto; }

    std::vector<Bytes> least_kept(Bytes budget, Family upto, Watch& watch, std::vector<int>* parents);
    std::vector<Ticks> least_remaining(Bytes budget, Family upto, const std::vector<Bytes>& least, Watch& watch);
    std::optional<ChainPlan> search(Bytes budget, Objective objective, Family upto, const ChainPlan* known,
                                    Watch& watch);
    ChainPlan trace(const std::vector<std::vector<Label>>& fronts) const;
    ChainPlan minimum_of(Family upto, ChainPlan best, Watch& watch);
    void measure(ChainPlan& plan);
    Family highest() const { return family_; }

    const StepGraph graph_;
    const Family family_;
    const Model model_;
    const LowerSets sets_;
    SegmentCosts costs_;
    std::vector<Arcs> arcs_[3];    // by tier of the target, then source
    size_t segments_known_ = 0;
    bool proven_infeasible_ = false;
    std::optional<ChainPlan> minimum_;
};

}  // namespace layermem
