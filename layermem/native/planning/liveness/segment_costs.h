// The costs of one segment of a chain: time to recompute it, bytes it leaves behind, and its peak.
//
// A chain {} = L0 < L1 < ... < Lk = V runs like this (V_i = L_i - L_{i-1}; "kept" = what later segments or backward
// may still need of V_i; U_i = all that is kept of V_1 .. V_i, and the inputs):
//
//      forward    V_1 | V_2 | ... | V_k          after V_i all but the kept values of V_i are freed
//      backward   V_k steps                      V_k still has everything
//                 V_{k-1} recompute, steps       values that its steps read and that were not kept are recomputed
//                 ...
//                 V_1 recompute, steps
//
//      bytes ^         __             ___              U_{i-1} stays resident while segment i works, so the peak of
//            |      __/  \__      ___/   \__           the segment above it depends on the pair (L_{i-1}, L_i) only:
//            |   __/|      |\____/|         \          so a dynamic program over pairs is exact.
//            +------+------+------+-----------> ops    [begin, end) of each lifetime: first write to last read
//
// Two models of a pair:
//   live   exact liveness, op by op: each byte from its first write to its last read, workspace and overlays included.
//          Recomputations all run before the first step (eager) or each just before the step that needs it, whichever
//          has the lower peak.  Kept of V_i: values that nodes or steps outside L_i read, values that a node read
//          outside writes for its backward only, and values marked `kept`.  A value that is kept for V_i alone, and
//          that neither backward nor a recomputation of V_i needs, is released when V_i has run.
//   paper  Kusumoto et al. 2019, equations 1 and 2, to the letter: everything of V_i that is outside the boundary is
//          recomputed, the last segment too, and the peak of a segment is
//          2 M(V_i) + M(d+(L_i) \ L_i) + M(d-(d+(L_i)) \ L_i).
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "planning/liveness/actions.h"
#include "planning/liveness/lower_set_facts.h"
#include "planning/lower_sets.h"
#include "planning/step_graph.h"

namespace layermem::planning::liveness {

enum class Model { paper, live };

struct Segment {
    Quanta recompute = 0;  // time of its recomputations
    Bytes kept = 0;        // M(U_i) - M(U_{i-1}); negative when it releases more than it keeps
    Bytes peak = 0;        // highest bytes while it runs, forward or backward, above M(U_{i-1})
    bool eager = true;     // all recomputations run before the first step
};

class SegmentCosts {
  public:
    SegmentCosts(const StepGraph& graph, const LowerSets& sets, Model model);

    Segment evaluate(SetIndex lower, SetIndex upper);
    // Single costs.  Time, kept bytes and a lower bound of the peak follow from the facts of the two sets; time and
    // bound may stop counting once they are above `stop_above`.
    Quanta recompute_time(SetIndex lower, SetIndex upper, Quanta stop_above = kNoLimit) const;
    Bytes kept_bytes(SetIndex lower, SetIndex upper) const;
    Bytes peak_bound(SetIndex lower, SetIndex upper, Bytes stop_above) const;
    // The peak takes a pass over the ops of the segment, in two parts: the peak of the forward, in a fraction of the
    // time; then the whole, if nothing else was evaluated in between.
    Bytes forward_peak(SetIndex lower, SetIndex upper);
    Bytes complete_peak(Bytes forward);
    // Every action of the chain (without {}, ending in V), in order.
    std::vector<Action> actions(const std::vector<SetIndex>& chain);
    Bytes inputs() const { return model_ == Model::live ? facts_.inputs() : 0; }  // M(U_0)
    // Returns a lower bound of the peak of every plan: one op with everything it touches.
    Bytes floor() const { return model_ == Model::live ? facts_.widest_op_bytes() : 0; }

  private:
    static constexpr Quanta kNoLimit = std::numeric_limits<Quanta>::max();
    static constexpr int kBefore = -1;  // a position before the first one
    struct Lifetime {
        uint64_t round = 0;         // of compute_lifetimes(); the rest is stale if it is not the current one
        int last_use = kBefore;     // position in sequence_
        int first_write = kBefore;  // likewise; kBefore if the item is there from the start
    };
    struct Change {
        Bytes born = 0, dying = 0;
    };
    bool is_last() const { return upper_ == sets_.size() - 1; }
    Bytes last_peak();
    void collect(SetIndex lower, SetIndex upper);
    Bytes first_run_peak() const;
    void select_recomputes();
    void set_sequence(bool eager);
    void compute_lifetimes(bool with_forward);
    Bytes bytes_at_start(bool with_forward) const;
    Bytes eager_peak_bound() const;
    Bytes sequence_peak(Bytes live) const;
    Bytes overlaid_bytes(const FlatOp& op, int position) const;
    bool is_used(Item item) const { return lifetimes_[item].round == round_; }  // by something in sequence_
    bool in_segment(Value x) const { return facts_.producer(x) >= 0 && in_segment_[facts_.producer(x)]; }
    void append_paper_backward(std::vector<Action>& out) const;

    const StepGraph& graph_;
    const LowerSets& sets_;
    const Model model_;
    const LowerSetFacts facts_;

    // Working state of one evaluation; the vectors are members so that they are allocated once.
    SetIndex lower_ = 0, upper_ = 0;
    std::vector<Node> nodes_;                       // of the segment, ascending
    std::vector<Step> steps_;                       // of the segment, in order
    std::vector<char> in_segment_;                  // per node
    std::vector<int> first_need_;                   // per value: position in steps_ that first needs it, or kNever
    std::vector<Value> needed_;                     // values with a first_need_
    Bytes step_needed_bytes_ = 0;                   // of those that steps need themselves
    std::vector<std::pair<int, Node>> recomputes_;  // {position in steps_ before which it runs, node}, by node
    std::vector<int> first_at_, next_at_;           // linked lists of recomputes_ by that position
    std::vector<OpIndex> sequence_;                 // the backward phase (of the last segment: forward too)
    std::vector<Lifetime> lifetimes_;               // per item
    std::vector<Change> change_;                    // per position in sequence_
    uint64_t round_ = 0;                            // calls of compute_lifetimes()
    bool is_eager_ = true;                          // of the segment whose peak was computed last
};

}  // namespace layermem::planning::liveness
