// What one segment of a chain costs: time to rebuild it, bytes it leaves behind, and its peak.
//
// A chain {} = L0 < L1 < ... < Lk = V runs like this (V_i = L_i - L_{i-1}; "kept" = what later segments or backward
// may still want of V_i; U_i = all that is kept of V_1 .. V_i):
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
//          wants it, whichever peaks lower.  Kept of V_i: values that nodes outside L_i read, what such a node
//          writes for its backward only, and values marked `kept`.  A value of d(L_{i-1}) whose readers all lie in
//          V_i and that neither backward nor a replay wants is released when V_i has run.
//   paper  Kusumoto et al. 2019, equations 1 and 2, to the letter: everything of V_i that is outside the boundary
//          is recomputed, the last segment too, and the peak of a segment is
//          2 M(V_i) + M(d+(L_i) \ L_i) + M(d-(d+(L_i)) \ L_i).
#pragma once
#include <cstdint>
#include <limits>
#include <vector>

#include "planning/graph.h"
#include "planning/lower_sets.h"

namespace layermem {

enum class Model { paper, live };

struct Segment {
    Ticks recompute = 0;  // time of its replays
    Bytes kept = 0;       // M(U_i) - M(U_{i-1}); negative when it releases more than it keeps
    Bytes peak = 0;       // highest bytes while it runs, forward or backward, above M(U_{i-1})
    bool eager = false;   // replays run all before the first step
};

constexpr int kNever = std::numeric_limits<int>::max();

enum class Verb : uint8_t { forward, replay, backward };

struct Action {
    Verb verb;
    int32_t id;  // a node, or a step for `backward`
};

// Overlays granted to one action: an item lends its bytes, or lands on another's, once; first come, first served.
class OverlayGain {
  public:
    explicit OverlayGain(const StepGraph& graph) : graph_(graph) {}
    void add(int written, int read) {
        if (graph_.item_bytes(written) > graph_.item_bytes(read)) return;
        for (int item : taken_)
            if (item == written || item == read) return;
        taken_.push_back(written);
        taken_.push_back(read);
        bytes_ += graph_.item_bytes(written);
    }
    Bytes bytes() const { return bytes_; }

  private:
    const StepGraph& graph_;
    std::vector<int> taken_;  // items, see StepGraph::item_bytes
    Bytes bytes_ = 0;
};

class SegmentCosts {
  public:
    SegmentCosts(const StepGraph& graph, const LowerSets& sets, Model model);

    Segment evaluate(int lower, int upper);
    // A number that evaluate(lower, upper).peak never goes below, in a fraction of its time; it may stop counting
    // once it is above `enough`.
    Bytes peak_bound(int lower, int upper, Bytes enough) const;
    // Every action of the chain (indices of sets, without {}, ending in V), in order.
    std::vector<Action> actions(const std::vector<int>& chain);
    Bytes inputs() const { return inputs_; }  // M(U_0)

  private:
    struct SetInfo {
        Ticks time = 0;       // T(L)
        Bytes bytes = 0;      // M(L)
        Bytes boundary = 0;   // M(d(L)), whole nodes
        Bytes carried = 0;    // live: what segments above leave for steps inside; paper: terms 3 and 4 of M_i
        Node first_owner = -1;           // owner of the step inside that runs first
        Bytes resident = 0;              // bytes of `at_first`
        Bytes readable = 0;              // bytes inside that any step reads
        std::vector<uint64_t> at_first;  // nodes whose values are surely resident when that step runs
        std::vector<Value> dying;        // resident when L is done, wanted by nothing in L any more
        Bytes dying_bytes = 0;
        std::vector<Node> boundary_nodes;
    };
    SetInfo describe(int set) const;
    void describe_paper(int set, SetInfo& info) const;
    void describe_live(int set, SetInfo& info) const;
    void describe_bound(int set, SetInfo& info) const;
    Segment paper_pair(int lower, int upper) const;
    Segment live_pair(int lower, int upper);

    void collect(int lower, int upper);
    Bytes forward_peak() const;
    Ticks find_replays();
    void set_sequence(bool eager);
    void find_last_uses();
    Bytes sequence_peak(bool with_forward);
    Bytes bytes_at_start(bool with_forward) const;
    Bytes overlay_gain(const Action& action, int position) const;
    Bytes released() const;
    void append_paper_segment(int lower, int upper, std::vector<Action>& out);
    void append_live_segment(int lower, int upper, std::vector<Action>& out);
    void use(int item, int position);
    bool mortal(int item) const;
    bool cached(Value x, int upper) const;
    bool wanted_below(Value x, int lower) const;
    bool any_in(const std::vector<Node>& nodes, int set) const;
    bool any_out(const std::vector<Node>& nodes, int set) const;

    const StepGraph& graph_;
    const LowerSets& sets_;
    const Model model_;
    Bytes inputs_ = 0;
    std::vector<Bytes> readable_;   // per node: bytes of its values that some step reads
    std::vector<SetInfo> info_;

    // Scratch of one evaluation.  An item is a value, or a gradient counted on from the last value.
    int lower_ = 0, upper_ = 0;
    std::vector<Node> nodes_;                    // of the segment, ascending
    std::vector<Step> steps_;                    // of the segment, in order
    std::vector<char> in_segment_;               // per node
    std::vector<char> cached_;                   // per value
    std::vector<int> want_;                      // per value: position in steps_ that first wants it, or kNever
    std::vector<Value> wanted_;                  // those with a want_
    std::vector<std::pair<int, Node>> replays_;  // {position in steps_ before which it runs, node}
    std::vector<Action> sequence_;
    std::vector<int> last_use_;                  // per item: position in sequence_, or -1
    std::vector<int> born_;                      // per item: position of its first write, or absent, or before
    std::vector<int> touched_;                   // items with a last use
};

// Exact liveness peak of any list of actions, each byte from the write it is needed from to its last read.
Bytes peak_of(const StepGraph& graph, const std::vector<Action>& actions);

}  // namespace layermem
