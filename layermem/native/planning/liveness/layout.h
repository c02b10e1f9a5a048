// Computes residencies, live bytes and seconds from an order of ops and a decision per gap.
//
//     uses of a buffer in the order     w . . r . . . . . . r . r     w writes, r reads
//     decisions for its gaps             KEEP    OFFLOAD     KEEP
//     residencies                       |#######|        |#####|      [begin, release) and [issue, release)
//                                            ^offload ^prefetch
//
// Positions index the order of ops; intervals are half-open.  Strategies evaluate thousands of plans of one graph, so a
// graph is built once (add_buffer, add_op), an order is prepared once for all plans that share it, and each layout is
// one pass over its uses.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "planning/types.h"

namespace layermem::planning::liveness {

using Position = int32_t;  // index in the order of ops
using BufferId = int32_t;  // in the order in which buffers were added
using OpId = int32_t;      // in the order in which ops were added

enum class Decision : int { keep = 0, offload = 1, recompute = 2 };

struct Buffer {
    std::string name;
    Bytes bytes;                                // aligned
    bool persistent;                            // outlives the step: a parameter, or optimizer state
    Seconds offload_seconds, prefetch_seconds;  // of a copy to the host, and back
};

// A permission: at this op, the bytes of `out` may be those of `over`.
struct OverlayRule {
    BufferId out, over;
    int kind;  // one bit; a plan allows a mask of them
};

struct Op {
    std::string name;
    std::vector<BufferId> reads, updates, writes;
    std::vector<OverlayRule> overlays;
    Bytes workspace_bytes;
    Seconds seconds;
    OpId recompute;  // the op that runs in its place from the second time on, -1 if it cannot be repeated
    bool comm;       // runs on the communication stream, while later ops run
};

struct Gap {
    BufferId buffer;
    int32_t use;  // the gap follows this use; -1 is the last one, which wraps round to the next step
    Decision decision;
};

// A buffer on the device, from its first use to the release of its bytes.
struct Residency {
    BufferId buffer;
    Position begin, end;  // its uses lie in [begin, end), the first at `begin`, the last at `end` - 1
    Position release;     // the bytes are free before the op at this position: `end`, or once a copy or comm op is done
    Position issue;       // a prefetch stands before the op at this position; -1 if the op at `begin` writes the bytes
    bool offloads;        // a copy to the host follows the last use
    bool permanent;       // for the whole run
};

constexpr Bytes kNoLimit = std::numeric_limits<Bytes>::max();

struct Plan {
    std::vector<OpId> order;            // a repeated op runs as its recomputation
    std::vector<Gap> decisions;         // gaps without one are kept
    int overlays;                       // mask of the kinds allowed
    double copy_lead;                   // fraction of a copy's duration that its bytes are held while other ops run
    Bytes copy_limit_bytes = kNoLimit;  // but not where more bytes than these would be in use
};

// The part of a plan that determines how long copies hold their bytes.
struct CopyTiming {
    double lead;
    Bytes limit_bytes = kNoLimit;
    int overlays = 0;  // they determine the bytes in use
};

struct Use {
    Position position;
    bool reads, writes;
};

// Data of an order of ops that all plans with this order share.
struct Order {
    std::vector<OpId> ops;           // what runs at each position
    std::vector<Seconds> starts;     // when each op starts without copies; the last entry is the end of the step
    std::vector<Position> comm;      // positions of ops on the stream of communication
    std::vector<Use> uses;           // buffer by buffer
    std::vector<int32_t> first_use;  // per buffer, an index in `uses`; the last entry is their number
};

struct Layout {
    std::vector<OpId> ops;  // what runs at each position
    std::vector<Residency> residencies;
    std::vector<Position>
        comm_release;         // per position of an op on the stream of communication: where it is done; or empty
    std::vector<Bytes> live;  // in use at each position, with these overlays; or empty
    int live_overlays;
};

class LayoutGraph {
  public:
    BufferId add_buffer(Buffer buffer);
    OpId add_op(Op op);
    const std::vector<Buffer>& buffers() const { return buffers_; }
    const std::vector<Op>& ops() const { return ops_; }

    // Throws std::invalid_argument on an order that repeats what cannot be repeated.
    Order prepare(const std::vector<OpId>& order) const;
    // Throws std::invalid_argument on a plan that reads bytes before they are written.  Residencies are sorted by buffer.
    Layout lay_out(const Order& order, const std::vector<Gap>& decisions, const CopyTiming& timing) const;
    Layout lay_out(const Plan& plan) const {
        return lay_out(prepare(plan.order), plan.decisions, {plan.copy_lead, plan.copy_limit_bytes, plan.overlays});
    }
    // Returns, for each op of the communication stream in Order::comm, the position before which its bytes are free.
    std::vector<Position> comm_releases(const Order& order, double copy_lead) const;
    // Returns the most aligned bytes in use at one tick.  Ticks of copies need no check: bytes in use while a copy is
    // issued are also in use at the op before or after it.
    Bytes peak_live_bytes(int overlays, const Layout& layout) const;
    Bytes peak_live_bytes(const Plan& plan, const Layout& layout) const {
        return peak_live_bytes(plan.overlays, layout);
    }
    // Returns the bytes in use at each position.
    std::vector<Bytes> live_profile(int overlays, const Layout& layout) const;
    std::vector<Bytes> live_profile(const Plan& plan, const Layout& layout) const {
        return live_profile(plan.overlays, layout);
    }
    // Returns the seconds of a step, assuming that all bytes that a copy frees are needed at once: an op waits for the
    // prefetches of its operands and for the offloads whose bytes are reused before it.  Copies of one position run by
    // first use, then in the order of buffers, as the instructions of a schedule do.
    Seconds estimate_seconds(const Layout& layout) const;

  private:
    struct Uses {  // of one buffer, with the decision for the gap after each of them
        const Use* begin;
        const Use* end;
        const Decision* decisions;
        Decision wrap;  // for the last gap
        bool has_wrap;
    };
    std::vector<OpId> resolve_recomputes(const std::vector<OpId>& order) const;
    std::vector<int32_t> first_residency(const Layout& layout) const;
    void add_residencies(BufferId buffer, const Uses& uses, Layout& layout) const;
    void time_copies(double copy_lead, const std::vector<Seconds>& starts, Layout& layout) const;
    void delay_releases(double copy_lead, const std::vector<Seconds>& starts,
                        const std::vector<Residency*>& offloaded) const;
    void shorten_copies(const CopyTiming& timing, Layout& layout) const;
    void delay_comm_releases(double copy_lead, const Order& order, Layout& layout) const;
    void advance_issues(double copy_lead, const std::vector<Seconds>& starts, const Layout& layout,
                        std::vector<Residency*>& prefetched) const;

    std::vector<Buffer> buffers_;
    std::vector<Op> ops_;
};

// Returns whether `out` may begin on the bytes of `over`, at the op where `over` ends.
inline bool may_overlay(const Residency& out, const Residency& over) {
    return out.issue < 0 && !over.offloads && out.permanent == over.permanent;
}

}  // namespace layermem::planning::liveness
