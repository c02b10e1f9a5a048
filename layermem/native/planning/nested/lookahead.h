// Recomputation by eviction with the future known: any value may be recomputed any number of times.
//
//     order      f1 f2 f3 f4 b4 b3 b2 b1                every op once: forward ops, then all others
//     walk       f1 f2 f3 f4 b4 f1 f2 b3 f1 b2 b1       x2 was evicted for f4, x1 to recompute x2, so f1 runs thrice
//
// A walk goes through the order once.  Where the next op lacks bytes, the resident value with the largest
//
//     bytes x (positions to its next need)^a / (seconds to recompute it from what is resident)^b
//
// is evicted; the next need counts the recomputations of evicted values that read it.  If the next op lacks a value,
// its producer runs again, preceded by the producers of its missing inputs.
//
// source  DTR (Kirisame et al., ICLR 2021) evicts by bytes x staleness / cost online; here the future stands in for the
//         past, as in Belady's rule
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planning/liveness/layout.h"
#include "planning/nested/item_set.h"
#include "planning/nested/order_items.h"

namespace layermem::planning::nested {

// Exponents of the score in halves, so that it needs only square roots and products: the same bits on every machine.
struct Exponents {
    int distance, cost;
};

// The cost of a recomputation in the score: the seconds of its ops, or one for each op.
enum class CostOf { kSeconds, kOps };

class LookaheadWalk {
  public:
    // The arguments are those of OrderItems, and
    LookaheadWalk(const LayoutGraph& graph, std::vector<OpId> order, const std::vector<BufferId>& evictable,
                  const std::vector<BufferId>& dropped, Position drop_at, int overlays,
                  const std::vector<liveness::Gap>& decisions = {});

    // Returns the order with recomputations for `budget_bytes` of everything, persistent buffers included; none if an
    // op does not fit.  The bytes are estimated: LayoutGraph::peak_live_bytes returns the exact ones, mostly fewer.
    std::optional<std::vector<OpId>> run(Bytes budget_bytes, Exponents exponents, CostOf cost_of = CostOf::kSeconds);
    const OrderItems& items() const { return of_; }
    // Returns the number of values whose next need or cost was computed, over all walks: the unit of search limits.
    int64_t steps() const { return steps_; }

  private:
    bool run_form(const Form& form, Position at, bool is_recompute, OpId op);
    bool evict_until_fits(const Form& form, Position at, Position now, Bytes limit);
    void find_needs(Position now);
    void find_needs_without(Evictable evicted, Position now);
    void find_costs(Evictable first, Position now);
    void find_needs_below(Evictable end, Position now);
    double need_of(Evictable item, Position now);
    double cost_of(Evictable item) const;
    void set_resident(Evictable item, bool resident);
    void forget_needs_of_inputs(Evictable item);
    void forget_costs_of_outputs(Evictable item);
    std::vector<Position> missing_producers(const std::vector<Evictable>& wanted);
    double score(Evictable item, Position now) const;
    void evict(Evictable item);

    const OrderItems of_;
    const Position drop_at_;
    std::vector<Evictable> dropped_;
    std::vector<std::vector<Position>> uses_;             // per item: positions that read it
    std::vector<std::vector<Evictable>> outputs_;         // per item: those whose recomputation reads it
    std::vector<Position> last_need_;                     // per item: last use of it, or of a value computed from it
    std::vector<std::vector<Position>> recomputed_from_;  // per item: producers whose recomputation reads it

    // the state of a walk
    Exponents exponents_{};
    CostOf cost_of_ = CostOf::kSeconds;
    Bytes budget_bytes_ = 0, used_bytes_ = 0;
    std::vector<char> resident_;
    ItemSet residents_;                // the same
    std::vector<int32_t> locked_;      // per item: how many coming ops forbid its eviction
    std::vector<char> in_chain_;       // per position: its op is about to run again
    std::vector<size_t> next_use_;     // per item: index in uses_
    std::vector<double> need_, cost_;  // per item: position of the next need, seconds to recompute it
    // Items whose need or cost may have changed: few do from one eviction to the next.
    ItemSet stale_needs_, stale_costs_;
    Position passed_ = 0;     // positions below it are no next uses any more
    Evictable produced_ = 0;  // items below it are produced at this position or before
    std::vector<OpId> result_;
    int64_t steps_ = 0;
};

}  // namespace layermem::planning::nested
