// Local search over plans: recomputations and offloads are added, removed and exchanged one by one.
//
//     uses of x        w r . . . . . . . . w r        x is recomputed for its last read
//     keep             w r . . . . . . . . . r        its earlier bytes stay
//     offload          w r |####......####| r         its earlier bytes leave, and come back over the link
//
// Every change is judged by the exact live bytes and seconds of the whole plan, so a copy is used only if the link has
// time for it.  Recomputations whose outputs nothing reads after a change are removed with it.
//
// source  the moves are those of annealing over sequences (FastSA, Preferred Networks 2023), taken greedily; with
//         offloads as in POFO (Beaumont et al., NeurIPS 2021)
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "planning/liveness/layout.h"
#include "planning/settings.h"

namespace layermem::planning::nested {

using liveness::BufferId;
using liveness::Gap;
using liveness::LayoutGraph;
using liveness::OpId;
using liveness::Position;

using Interrupt = std::function<void()>;  // called now and then; may throw

// The buffers that a plan may copy to the host.
struct Offloads {
    std::vector<BufferId> activations;            // any of them, in any gap
    std::vector<BufferId> state;                  // persistent buffers that are on the host between steps
    Bytes host_bytes = 0;                         // for copies of activations
    Position short_gap = 0;                       // gaps of at most so many ops are kept
    Bytes copy_limit_bytes = liveness::kNoLimit;  // live bytes up to which copies hold theirs
};

// A plan during the search.  Each entry of the order has a unique number, so that an offload keeps its gap while
// entries before it are inserted and removed.
struct Draft {
    std::vector<OpId> order;
    std::vector<int32_t> numbers;                         // per position
    std::vector<std::pair<BufferId, int32_t>> offloaded;  // the gap after the use at the entry of this number
    Seconds seconds = 0;
    Bytes live_bytes = 0;
};

class LocalSearch {
  public:
    // evictable  buffers that may be recomputed; dropped  per buffer: its recomputations are not removed
    LocalSearch(const LayoutGraph& graph, const std::vector<BufferId>& evictable, std::vector<char> dropped,
                int overlays, Offloads offloads, const SearchSettings& settings);

    Draft draft(std::vector<OpId> order);
    std::vector<Gap> decisions(const Draft& draft) const;
    // Offloads activations until the plan fits the budget; returns none if there are no more activations to offload, or
    // if the plan takes more seconds than `limit`.
    std::optional<Draft> fit(Draft draft, Bytes budget_bytes, Seconds limit, int64_t work_end,
                             const Interrupt& interrupt);
    // Keeps or offloads recomputed values, and keeps or recomputes offloaded ones, while that is quicker and fits.
    Draft improve(Draft draft, Bytes budget_bytes, int64_t work_end, const Interrupt& interrupt);
    // Returns the number of positions of all measured plans, times the work of one.
    int64_t work() const { return work_; }

  private:
    struct Measured {
        liveness::Layout layout;
        std::vector<Bytes> live;  // per position
    };

    liveness::Plan plan_of(const Draft& draft) const;
    Measured measure(Draft& draft);
    void erase(Draft& draft, Position p) const;
    void erase_needless(Draft& draft) const;
    bool offload_before(Draft& draft, Position p) const;
    bool within_host_bytes(const Draft& draft) const;
    std::vector<OpId> forms(const Draft& draft) const;
    bool touches(OpId op, BufferId buffer) const;
    bool exchange_one(Draft& draft, Bytes budget_bytes, std::vector<char>& tried);
    bool keep_one(Draft& draft, Bytes budget_bytes);
    bool recompute_one(Draft& draft, Bytes budget_bytes, int64_t work_end);

    const LayoutGraph& graph_;
    const SearchSettings& settings_;
    const std::vector<char> dropped_;  // per buffer
    const int overlays_;
    const Offloads offloads_;
    std::vector<char> may_offload_, is_state_;  // per buffer
    std::vector<OpId> producers_;               // per buffer: the op that recomputes it, or -1
    int64_t work_ = 0;
};

}  // namespace layermem::planning::nested
