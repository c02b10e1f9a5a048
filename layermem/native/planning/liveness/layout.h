// When is each buffer resident?  From an order of ops and the fates of gaps to stays, bytes in use, and seconds.
//
//     uses of a buffer in the order     w . . r . . . . . . r . r        w writes, r reads
//     fates of its gaps                  KEEP    OFFLOAD     KEEP
//     stays                             |#######|        |#####|         [first, release) of the 1st, [issue, ..) of the 2nd
//                                            ^offload ^prefetch
//
// Positions index the order of ops; intervals are half-open.  Strategies ask for thousands of layouts of one graph, so a
// graph is given once (add_buffer, add_op) and each layout is one pass over the order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace layermem::layout {

using Bytes = int64_t;
using Position = int32_t;  // index in the order of ops
using Id = int32_t;        // of a buffer or an op, in the order in which they were added

enum class Fate : int { keep = 0, offload = 1, drop = 2 };

struct Buffer {
    std::string name;
    Bytes bytes;      // aligned
    bool persistent;  // outlives the step: a parameter, a history
    double offload, prefetch;  // seconds of a copy
};

struct Overlay {
    Id out, over;
    int kind;  // a bit; a plan allows a mask of them
};

struct Op {
    std::string name;
    std::vector<Id> reads, updates, writes;
    std::vector<Overlay> overlays;
    Bytes workspace;
    double seconds;
    Id replay;  // the op that runs the second time, -1 if none can
};

struct Gap {
    Id buffer;
    int32_t use;  // the stretch after this use; -1 is the last one, which wraps round the step
    Fate fate;
};

// One stretch of residence.
struct Stay {
    Id buffer;
    Position first, last;  // its uses
    Position release;      // the bytes are free before this position's op; after `last`, or once a copy is done
    Position issue;        // a prefetch stands before this position's op; -1 if `first` writes the bytes
    bool offloads;         // a copy to the host follows `last`
    bool whole;            // resident for the whole run
};

struct Plan {
    std::vector<Id> order;  // a repeated op runs as its replay
    std::vector<Gap> fates;
    int overlays;  // mask of kinds
    double ahead;  // share of a copy's duration that bytes are held beside other work
};

struct Layout {
    std::vector<Id> ops;  // what runs at each position
    std::vector<Stay> stays;
};

class Graph {
  public:
    Id add_buffer(Buffer buffer);
    Id add_op(Op op);

    // Throws std::invalid_argument on a plan that repeats what cannot be repeated, or reads what nobody made.
    Layout lay_out(const Plan& plan) const;
    // Most aligned bytes in use at one tick.  Copies need not be looked at: whatever is in use while one is issued is
    // in use at the op before or after it.
    Bytes live(const Plan& plan, const Layout& laid) const;
    // Seconds of a step, as if all bytes that a copy frees were wanted at once: an op waits for the prefetches of what
    // it touches and for the offloads whose bytes are given away before it.  Copies of one position run by first use,
    // then in the order of buffers, as the rows of a schedule do.
    double seconds(const Layout& laid) const;

  private:
    struct Use {
        Position position;
        bool reads, writes;
    };
    void stays_of(Id buffer, const std::vector<Use>& uses, const std::vector<Gap>& fates, Layout& laid) const;
    void time_copies(const Plan& plan, Layout& laid) const;

    std::vector<Buffer> buffers_;
    std::vector<Op> ops_;
};

// Whether `out` may begin on the bytes of `over`, at the op where the one begins and the other ends.
inline bool may_overlay(const Stay& out, const Stay& over) {
    return out.issue < 0 && !over.offloads && out.whole == over.whole;
}

}  // namespace layermem::layout
