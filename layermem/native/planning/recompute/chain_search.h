// One search: the best chain within a budget and a time, over the lower sets up to one tier.  A resource-constrained
// shortest path, solved by label setting.
//
//   label    (L, t, m): the first segments of some chain end in L, their recomputation takes t, M(U) = m bytes are kept
//   edge     to L' > L, if m + peak(L, L') <= budget:  t += recompute(L, L'),  m += kept(L, L')
//   front    per L, the labels that no other label dominates (less or equal in both t and m)
//   answer   the label of V with the least t (Objective::time), or the largest (Objective::memory: the paper's
//            memory-centric rule, whose coarse segments profit most from liveness); among equals the least m
//
//      m ^ .                        Sets are visited by size: all labels that lead to L exist when L is visited.
//        |  . .     front of L      A label is dropped when t + what must follow (lagrangian_bounds.h) exceeds the
//        |      . .                 time limit.  So is an edge that no chain within the time can use, most of them by
//        +-----------> t            their bounds alone; exact costs are computed when a label is about to use an edge
//                                   and would not be dominated with the edge's bounds.
#pragma once

#include <optional>
#include <vector>

#include "planning/recompute/lagrangian_bounds.h"
#include "planning/recompute/prefix_minimum.h"
#include "planning/recompute/reachability.h"

namespace layermem::planning::recompute {

// The question: chains of sets of the tiers up to `upto` within `budget_bytes`.
struct ChainQuery {
    Family upto;
    Bytes budget_bytes;
    Objective objective;
};

class ChainSearch {
  public:
    // Chains that recompute more than `max_recompute` are of no interest.  `inputs` bytes are resident from the start.
    ChainSearch(const LowerSets& sets, SegmentGraph& graph, Bytes inputs, const ChainQuery& query, Quanta max_recompute,
                Deadline& deadline);

    // Returns the best chain, if there is one within max_recompute.  For the least time, limits grow from the proven
    // bounds: the nearer a limit is to the answer, the fewer edges have to be made exact.
    std::optional<Chain> find_best();
    // Returns some chain within max_recompute, by beam search: at most `width` labels per set.
    std::optional<Chain> beam_search(size_t width);
    // Returns a lower bound of the recomputation of all chains; the second function returns whether V is unreachable by
    // segments that recompute at most max_recompute each.
    Bound lower_bound() const { return reach_.is_infeasible() || !by_time() ? 0 : bounds_.chain_bound(inputs_); }
    bool is_unreachable() const { return reach_.is_infeasible(); }
    // Lowers max_recompute, once a chain with that time is known, and drops the edges that became useless.
    void lower_max_recompute(Quanta time);

  private:
    struct Label {
        Quanta key;  // time, negated where the largest is wanted
        Bytes kept;
    };
    using ParetoFront = std::vector<Label>;  // by rising key and falling bytes
    struct IncomingEdge {
        SetIndex from;
        SegmentEdge* edge;
        Bound bound;  // of the recomputation of chains that use it
        Quanta key_step(bool by_time) const {
            return by_time ? edge->recompute : -static_cast<Quanta>(edge->recompute);
        }
    };

    bool by_time() const { return query_.objective == Objective::time; }
    // Returns the bytes of an edge that bounds charge: for the last segment its peak, since none are kept after it.
    Bytes charged_bytes(SetIndex to, Bytes kept, Bytes peak) const { return to == last_ ? peak : kept; }
    template <class Visit>
    void for_each_edge(SetIndex from, Visit visit);
    Bound bound_through(SetIndex from, const SegmentEdge& edge) const;
    void compute_bounds();
    void collect_edges();
    void tighten_bounds();
    void select_edges();
    std::optional<Chain> run(size_t width);
    void extend_into(SetIndex to, std::vector<ParetoFront>& fronts);
    void drop_late_labels(SetIndex set, ParetoFront& front) const;
    void prune_to_width(SetIndex set, ParetoFront& front, size_t width) const;
    Chain trace_back(const std::vector<ParetoFront>& fronts) const;

    const LowerSets& sets_;
    SegmentGraph& graph_;
    const Bytes inputs_;
    const ChainQuery query_;
    const SetIndex last_;  // V
    Quanta max_recompute_;
    Deadline& deadline_;
    const Reachability reach_;
    LagrangianBounds bounds_;
    bool is_infeasible_;
    std::vector<std::vector<IncomingEdge>> useful_;    // per set, the edges that a chain within the time may use
    std::vector<std::vector<IncomingEdge>> incoming_;  // of these, those within the limit of a run
    std::vector<Bytes> least_kept_;                    // workspace of extend_into(): per key, the least kept
    PrefixMinimum<Bytes> least_up_to_;                 // the same of all keys up to one
    std::vector<int32_t> touched_;                     // the keys that have a least kept
};

}  // namespace layermem::planning::recompute
