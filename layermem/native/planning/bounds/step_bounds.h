// Lower bounds for every order of a step's ops, with any number of recomputations and copies to the host.
//
// Consider one op o while it runs for the first time.  Its ancestors have run, its descendants have not.
//
//     ancestors            o                 descendants        a value u that an ancestor made and a descendant reads
//     p --- u ------------------------------ reader             is held (on the device or the host), or p runs again,
//            \_ p again? _/                                     and then the same holds for all that p reads
//
// Which values are held and which ops run again is a cut of a network (moment.h); the least seconds + price x bytes held
// is a minimum cut, exact by max-flow min-cut, and a bound on the seconds for each price: Lagrangian relaxation of the
// bytes.  At a few ops o a search holds each value whole or not at all (whole_values.h).  The operands of o take W bytes,
// so the device holds at most B - W bytes of a budget B, and the host h bytes.  For the best h, a step takes at least
//
//     every op once + recompute(h)                                          compute is one stream
//     ancestors and o + h / h2d                                             the bytes are away until o ends
//     o and descendants + recompute(h) + (h - persistent bytes) / d2h       what this step made went out before o
//
// An op that runs again after o needs bytes next to every persistent buffer, and next to the values on any path of
// first runs from o to the last op that uses its result: gradients that cannot be recomputed.  If that exceeds the
// budget and the host's share, the op cannot run again and its price is infinite.
//
// The bounds use only true dependencies, so they hold for any order of the ops.
//
// source  Kumar et al. 2019 and Jain et al. (Checkmate, MLSys 2020) state the recomputation of values as a program over
//         stages; this is its relaxation to one stage, with the chain of recomputations kept whole.  Beaumont et al.
//         (POFO, NeurIPS 2021) have the same two resources, compute and link.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "planning/types.h"

namespace layermem::planning::bounds {

using BufferId = int32_t;
using OpId = int32_t;

struct Form {  // an op, or its recomputation
    Seconds seconds = 0;
    Bytes workspace_bytes = 0;
    std::vector<BufferId> reads, updates, writes;
    std::vector<std::pair<BufferId, BufferId>> overlays;  // {written, read} that may lie on the same bytes
};

struct Link {
    double d2h, h2d;  // bytes per second
};

class StepBounds {
  public:
    explicit StepBounds(Link link) : link_(link) {}
    // Bytes are aligned by the caller.
    BufferId add_buffer(Bytes bytes, bool is_persistent);
    // Ops are added in an order that can run.
    OpId add_op(Form first, std::optional<Form> again);

    // Returns bytes below which no order of the ops can be, with `host_bytes` on the host (none: no limit).
    Bytes least_bytes(std::optional<Bytes> host_bytes) const;
    // Returns seconds below which no order can be, for each budget; infinite if none fits.
    std::vector<Seconds> least_seconds(const std::vector<Bytes>& budgets, std::optional<Bytes> host_bytes) const;

  private:
    friend class Moment;
    struct Op {
        Form first;
        std::optional<Form> again;
        std::vector<std::pair<OpId, BufferId>> parents, children;  // by the buffer that connects them
    };

    std::vector<OpId> peak_ops(size_t count) const;
    Bytes in_use(const Form& form) const;
    Bytes untouched_persistent_bytes(const Form& form) const;

    Link link_;
    Seconds seconds_ = 0;  // of every op once
    std::vector<Bytes> bytes_;
    std::vector<char> persistent_;
    Bytes persistent_bytes_ = 0;
    std::vector<Op> ops_;
    std::vector<OpId> producer_, writer_;             // first and last writer of each buffer, -1: none
    std::vector<std::vector<OpId>> readers_, again_;  // of each buffer: ops, and recomputations, that read it
    std::vector<char> touched_again_;                 // per buffer: by any recomputation
};

}  // namespace layermem::planning::bounds
