// One op of a step while it runs for the first time: the network whose cuts are sets of held values and recomputations.
//
//     source -> u                 u is needed after o                          (infinite)
//     u -> p                      cut: u is held; else p runs again            price of u's bytes
//     p -> sink                   cut: p runs again                            seconds of p, infinite where it cannot
//     p -> w                      p reads w, so w is needed too                (infinite)
//     source -> p                 p is chosen to run again                     (infinite, else 0)
//
// A relaxation has prices for bytes and seconds, so it may hold a share of a value.  With every choice made, it cannot.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "planning/bounds/max_flow.h"
#include "planning/bounds/step_bounds.h"

namespace layermem::planning::bounds {

enum class Rerun : char { kFree, kNever, kAlways };
using Reruns = std::vector<Rerun>;  // per op: whether it runs again after o

// Bounds of the plans that agree with some choices.
struct Relaxation {
    Seconds seconds;  // none of them is below
    Seconds reached;  // of one whose values are held whole
    OpId open;        // the dearest op that runs again in one cut nearby and not in the other; -1: none
};

class Moment {
  public:
    Moment(const StepBounds& step, OpId op);

    // Returns bytes below which o cannot run with `host_bytes` on the host; `known_bytes` is another bound, which is
    // returned unless this one is above it.
    Bytes least_bytes(Bytes host_bytes, Bytes known_bytes);
    // Returns seconds below which no step within the budget can be; infinite if o cannot run.  A result that is not
    // above `known_seconds` may be too small.
    Seconds least_seconds(Bytes budget_bytes, std::optional<Bytes> host_bytes, Seconds known_seconds);
    // Returns the bounds of the plans that agree with `reruns`.
    Relaxation relax(const Reruns& reruns, Bytes budget_bytes, std::optional<Bytes> host_bytes, Seconds known_seconds);
    // Returns the choices in which ops that always lack bytes do not run again after o.
    Reruns possible_reruns(Bytes budget_bytes, std::optional<Bytes> host_bytes);
    // Returns about the number of edges of the network that all calls visited: the unit of search limits.
    int64_t steps() const { return steps_; }

  private:
    struct Cut {
        double bytes, seconds;    // held, recomputed
        double value;             // at most the least of price x bytes + seconds
        std::vector<char> again;  // per entry of runs_again_
    };
    struct Line {  // seconds >= value - price x bytes
        double price, value;
    };
    struct Curve {              // of one set of choices
        std::vector<Cut> cuts;  // by bytes
        std::vector<Line> lines;
    };
    struct Best {
        Seconds seconds;
        double host_bytes;
    };
    struct Space {  // besides o: on the device; on the host; off the device, if nothing runs again
        double device_bytes, host_bytes, most_away;
    };

    void find_relatives(OpId op, bool descendants, std::vector<char>* found) const;
    void find_operands();
    void prepare();  // builds the data of moments that lack bytes
    void find_bytes_to_recompute();
    void build_network();
    bool is_from_before(BufferId buffer) const;
    bool is_needed(BufferId buffer) const;  // by a descendant
    int need(BufferId buffer);              // its node
    int again(OpId op);
    Cut cut(double byte_price, double second_price, const Reruns& reruns);
    Relaxation relax(Curve& curve, const Reruns& reruns, Bytes budget_bytes, std::optional<Bytes> host_bytes,
                     Seconds known_seconds);
    Space space(Bytes budget_bytes, std::optional<Bytes> host_bytes) const;
    OpId dearest_difference(const Cut& a, const Cut& b) const;
    Best best_host_bytes(const Curve& curve, double device_bytes, double low, double high) const;
    Seconds seconds_with(double host_bytes, double recompute_seconds) const;

    const StepBounds& step_;
    const OpId op_;
    std::vector<char> before_, after_;                // per op
    Seconds before_seconds_ = 0, after_seconds_ = 0;  // of the ancestors and of the descendants, each with o
    Bytes in_use_ = 0;
    Bytes returning_bytes_ = 0, other_persistent_bytes_ = 0;  // persistent, not touched by o: needed after it, or not
    std::vector<char> free_;                                  // per buffer: in use by o anyway
    std::vector<Bytes> again_bytes_;  // per op: least other bytes in use when it runs again after o
    std::vector<OpId> recomputable_;  // ops in the network that can run again

    MaxFlow flow_{2};
    struct HeldEdge {
        int edge, from, to;
        Bytes bytes;
    };
    struct AgainEdge {
        int edge, always, from;  // `always`: the edge from the source
        OpId op;
    };
    std::vector<HeldEdge> held_;
    std::vector<AgainEdge> runs_again_;
    std::vector<int> infinite_;                // edges
    std::vector<int> need_node_, again_node_;  // per buffer, per op; -1: none
    std::vector<BufferId> waiting_;            // buffers whose edges are still to be added
    double needed_bytes_ = 0;                  // of what descendants read: held, nothing runs again
    std::map<Reruns, Curve> curves_;           // of what may run again at all, by budget
    int64_t steps_ = 0;
};

}  // namespace layermem::planning::bounds
