// The values of an order that may be recomputed, numbered as items, and their uses by each op of the order.
#pragma once

#include <cstdint>
#include <vector>

#include "planning/liveness/layout.h"

namespace layermem::planning::nested {

using liveness::BufferId;
using liveness::LayoutGraph;
using liveness::OpId;
using liveness::Position;

using Evictable =
    int32_t;  // index of an evictable buffer, in the order of producers: an op's inputs have lower numbers

// The items of an op, or of its recomputation.
struct Form {
    std::vector<Evictable> reads, writes;
    struct Overlay {
        Evictable out;  // -1: not evictable
        BufferId out_buffer;
        Evictable over;
        Bytes bytes;
    };
    std::vector<Overlay> overlays;  // over items
    Bytes workspace_bytes = 0;
};

struct OrderItems {
    // order      every op once, in an order that runs
    // evictable  buffers that their producers' recomputations write: data or stashes, written by one op and never updated
    // overlays   mask of the kinds that the plan allows
    // decisions  of the buffers that are not evictable, such as state that is on the host between steps
    OrderItems(const LayoutGraph& graph, std::vector<OpId> order, const std::vector<BufferId>& evictable, int overlays,
               const std::vector<liveness::Gap>& decisions = {});

    std::vector<OpId> order;
    // per item
    std::vector<BufferId> buffers;
    std::vector<Bytes> bytes;
    std::vector<Position> producers;
    // per buffer
    std::vector<Evictable> items;  // -1 if not evictable
    // per position
    std::vector<Form> forms, again;  // the op, and its recomputation
    std::vector<char> repeatable;
    std::vector<Seconds> again_seconds;
    std::vector<Bytes> during, before;          // of all that is not evictable, at the op and just before
    std::vector<std::vector<BufferId>> begins;  // buffers that are not evictable and begin there

  private:
    Form make_form(const LayoutGraph& graph, OpId op, int overlays) const;
    void count_other_bytes(const LayoutGraph& graph, int overlays, const std::vector<liveness::Gap>& decisions);
};

}  // namespace layermem::planning::nested
