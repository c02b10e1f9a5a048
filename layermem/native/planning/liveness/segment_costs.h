// What one segment of a chain costs: time to rebuild it, bytes it leaves behind, and its peak.
//
// A chain {} = L0 < L1 < ... < Lk = V runs like this (V_i = L_i - L_{i-1}; "kept" = what later segments or backward
// may still want of V_i; U_i = all that is kept of V_1 .. V_i, and the inputs):
//
//      forward    V_1 | V_2 | ... | V_k          after V_i all but the kept values of V_i are dropped
//      backward   V_k steps                      V_k still has everything
//                 V_{k-1} replay, steps          what its steps read and nobody kept is run forward again
//                 ...
//                 V_1 replay, steps
//
//      bytes ^         __             ___              U_{i-1} stays put while segment i works, so the peak of the
//            |      __/  \__      ___/   \__           segment above it depends on the pair (L_{i-1}, L_i) only:
//            |   __/|      |\____/|         \          that is what makes a dynamic program over pairs exact.
//            +------+------+------+-----------> ops    [begin, end) of each life: first write to last read
//
// Two models of a pair:
//   live   exact liveness, op by op: each byte from its first write to its last read, workspace and overlays
//          included.  Replays run where they suit best, all before the first step or each just before the step that
//          wants it, whichever peaks lower.  Kept of V_i: values that nodes or steps outside L_i read, what a node
//          that is read outside writes for its backward only, and values marked `kept`.  A value that is kept for
//          V_i alone, and that neither backward nor a replay of V_i wants, is released when V_i has run.
//   paper  Kusumoto et al. 2019, equations 1 and 2, to the letter: everything of V_i that is outside the boundary
//          is recomputed, the last segment too, and the peak of a segment is
//          2 M(V_i) + M(d+(L_i) \ L_i) + M(d-(d+(L_i)) \ L_i).
#pragma once
#include <cstdint>
#include <limits>
#include <vector>

#include "planning/step_graph.h"
#include "planning/liveness/lower_set_facts.h"
#include "planning/lower_sets.h"

namespace layermem::planning {

enum class Model { paper, live };

struct Segment {
    Ticks recompute = 0;  // time of its replays
    Bytes kept = 0;       // M(U_i) - M(U_{i-1}); negative when it releases more than it keeps
    Bytes peak = 0;       // highest bytes while it runs, forward or backward, above M(U_{i-1})
    bool eager = true;    // replays run all before the first step
};

enum class Verb : uint8_t { forward, replay, backward };

struct Action {
    Verb verb;
    int32_t id;  // a node, or a step for `backward`
};

class SegmentCosts {
  public:
    SegmentCosts(const StepGraph& graph, const LowerSets& sets, Model model);

    Segment evaluate(int lower, int upper);
    // Numbers that evaluate(lower, upper).peak, .recompute and .kept never go below, in a fraction of its time; the
    // first two may stop counting once they are above `enough`.
    Bytes peak_bound(int lower, int upper, Bytes enough) const;
    Ticks time_bound(int lower, int upper, Ticks enough) const;
    Bytes kept_bound(int lower, int upper) const;
    // Every action of the chain (indices of sets, without {}, ending in V), in order.
    std::vector<Action> actions(const std::vector<int>& chain);
    Bytes inputs() const { return model_ == Model::live ? facts_.inputs() : 0; }  // M(U_0)
    // No plan of any kind peaks lower: one op with all it touches.
    Bytes floor() const { return model_ == Model::live ? facts_.widest_op() : 0; }

  private:
    static constexpr int kBefore = -1;
    struct Life {
        uint64_t round = 0;    // the one that the rest is of
        int last = kBefore;    // position of the last use in sequence_
        int born = kBefore;    // and of the first write, unless it is there before
    };
    struct Change {
        Bytes born = 0, dying = 0;
    };
    Segment paper_pair(int lower, int upper) const;
    Segment live_pair(int lower, int upper);
    void collect(int lower, int upper);
    Bytes forward_peak() const;
    Ticks find_replays();
    void set_sequence(bool eager);
    void find_lives(bool with_forward);
    Bytes bytes_at_start(bool with_forward) const;
    Bytes eager_bound() const;
    Bytes sequence_peak(Bytes live) const;
    Bytes overlay_gain(const FlatOp& op, int position) const;
    Bytes kept() const;
    bool releasable(Value x, int upper) const;
    bool used(int item) const { return lives_[item].round == round_; }  // by something in sequence_
    bool in_segment(Value x) const { return facts_.producer(x) >= 0 && in_segment_[facts_.producer(x)]; }
    void append_paper_segment(std::vector<Action>& out) const;

    const StepGraph& graph_;
    const LowerSets& sets_;
    const Model model_;
    const SetFacts facts_;

    // Scratch of one evaluation.  An item is a value, or a gradient counted on from the last value; an op is a node,
    // or a step counted on from the last node.
    int lower_ = 0, upper_ = 0;
    std::vector<Node> nodes_;                    // of the segment, ascending
    std::vector<Step> steps_;                    // of the segment, in order
    std::vector<char> in_segment_;               // per node
    std::vector<int> want_;                      // per value: position in steps_ that first wants it, or kNever
    std::vector<Value> wanted_;                  // those with a want_
    Bytes step_wanted_ = 0;                      // bytes of those that steps want, and nobody kept
    std::vector<std::pair<int, Node>> replays_;  // {position in steps_ before which it runs, node}, by node
    std::vector<int> first_at_, next_at_;        // lists of replays_ by that position
    std::vector<int> sequence_;                  // ops of the backward phase (last segment: of both)
    std::vector<Life> lives_;                    // per item
    std::vector<Change> change_;                 // per position in sequence_
    uint64_t round_ = 0;                         // of find_lives()
};

// Exact liveness peak of any list of actions, each byte from the write it is needed from to its last read.
Bytes peak_of(const StepGraph& graph, const std::vector<Action>& actions);

}  // namespace layermem::planning
