// An order cut into blocks at its bottlenecks: forward positions at which at most one value that may be recomputed is
// read further on.  Plans of it come from the dynamic program of chain_program.h.
//
//     forward     | f1 f2 f3 | f4 f5 | f6 f7 f8 |      block 1's boundary is what f3 writes
//     backward    | b8 b7 b6 | b5 b4 | b3 b2 b1 |      an op belongs to the block whose inner values it reads
//
// A range of blocks keeps those inner values that take most seconds per byte to recompute: how many is a choice of its
// plan, and so is whether its backward recomputes the others all at first or each one when it is needed.
#pragma once

#include <cstdint>
#include <vector>

#include "planning/nested/chain_program.h"
#include "planning/nested/order_items.h"

namespace layermem::planning::nested {

// The values that a range keeps, and the order in which its backward recomputes the rest.
struct RangeChoice {
    int32_t kept;  // number of kept values, by falling seconds per byte
    bool lazy;
};

// The chain of a dynamic program, and the meaning of its plans: choices[block][plan].
struct ChainPlans {
    Chain chain;
    std::vector<std::vector<RangeChoice>> choices;
};

class BlockChain {
  public:
    // Backward begins at position `backward`.  `items` must outlive the object.
    BlockChain(const OrderItems& items, Position backward);

    // Returns 0 blocks if recomputable values are made in backward.
    int32_t size() const { return static_cast<int32_t>(blocks_.size()); }
    // Returns the plans of ranges that may fit within these bytes.
    ChainPlans plans(Bytes most_bytes) const;
    std::vector<OpId> order(const ChainPlans& plans, const std::vector<ChainStep>& steps) const;

  private:
    struct Block {
        Position first, end;             // of forward
        Evictable first_item;            // of those that it makes
        Evictable boundary;              // -1 where nothing that may be recomputed is read further on
        std::vector<Position> backward;  // ascending
    };
    struct Entry {
        Position position;
        bool again;
        Bytes base_bytes;  // of buffers that are no items
    };
    struct BlockRange {  // with its values, numbered from `first_item` on
        int32_t begin, end;
        Evictable first_item;
        size_t count;
        std::vector<Position> backward;
        std::vector<Evictable> rank;  // what its backward reads, that which takes most seconds per byte first
    };

    void cut(Position backward);
    void assign_backward(Position backward);
    void join_smallest();
    BlockRange range(int32_t begin, int32_t end) const;
    std::vector<char> kept(const BlockRange& range, const RangeChoice& choice) const;
    std::vector<Position> needed_forward(const BlockRange& range, const std::vector<char>& kept) const;
    std::vector<Entry> backward_entries(const BlockRange& range, const std::vector<char>& kept, bool lazy) const;
    Bytes peak_bytes(const BlockRange& range, const std::vector<Entry>& entries, std::vector<char> resident,
                     const std::vector<char>& stays) const;
    Bytes forward_peak(const BlockRange& range, const std::vector<char>& kept,
                       const std::vector<Position>& needed) const;
    Seconds again_seconds(const std::vector<Position>& positions) const;

    const OrderItems& of_;
    std::vector<Block> blocks_;
};

}  // namespace layermem::planning::nested
