// The data of a segment's costs that depend on one of its lower sets alone, and the graph flattened for fast passes.
//
//      item    a value, or a gradient           FlatOp   a node, or a step
//      touch   [ values read | written ]        of a node
//              [ values read | gradients read or written ]   of a step
#pragma once

#include <cstdint>
#include <vector>

#include "planning/lower_sets.h"
#include "planning/step_graph.h"

namespace layermem::planning::liveness {

using OpIndex = int;  // a node, or a step: steps are numbered on from the last node

// Pointers into the arrays of LowerSetFacts.
struct FlatOp {
    const Item *touch, *middle, *touch_end;  // `middle` is the bar of the picture
    const Item *write, *write_end;           // items written
    const Overlay *overlay, *overlay_end;    // {item written, item read}
    Bytes workspace_bytes;
};

// A step of a set at which many bytes are resident, whatever the segment begins with: it bounds the peak from below.
struct PeakWitness {
    Node owner;
    std::vector<uint64_t> nodes;  // of these nodes, those in the segment have all that steps read of them resident,
    Bytes node_bytes;             // so many bytes in all;
    Bytes beside;                 // and the step's gradients, workspace, and carried bytes still needed
};

// Facts of one lower set L.
struct SetFacts {
    Quanta time = 0;             // T(L)
    Bytes bytes = 0;             // M(L)
    std::vector<Node> boundary;  // d(L): nodes that a node outside reads
    Quanta boundary_time = 0;    // T(d(L))
    Bytes outside = 0;           // M(d+(L) \ L) + M(d-(d+(L)) \ L)
    Bytes carried = 0;           // bytes that steps outside L leave for steps inside
    // Values that are kept when L is done: those marked `kept`, and the others by the node that writes them.
    Bytes fixed_bytes = 0;
    std::vector<std::pair<Node, Bytes>> kept;
    // Values that are kept when L is done, but that nothing in L needs any more.
    std::vector<Value> dying;
    Bytes dying_bytes = 0;
    std::vector<Value> releasable;  // dying values that no step reads: a recomputation may
    // Facts of segments that end in L, whatever they begin with (nodes below do not count):
    std::vector<uint64_t> recomputed;         // nodes that run again
    Quanta recompute_time = 0;                // of their recomputations
    std::vector<PeakWitness> peak_witnesses;  // by falling bytes; every segment includes the owner of some
    // Facts of segments that begin at L, about the nodes in L:
    Bytes read_bytes = 0;          // bytes that any step reads
    Quanta recomputable_time = 0;  // of recomputations of all of them
};

class LowerSetFacts {
  public:
    LowerSetFacts(const StepGraph& graph, const LowerSets& sets);

    const SetFacts& of(SetIndex set) const { return facts_[set]; }
    // Returns whether a segment that ends in the set runs the node again, if the node is in the segment.
    bool is_recomputed(SetIndex set, Node v) const { return (facts_[set].recomputed[v >> 6] >> (v & 63)) & 1; }
    // As the upper end: whether a value inside is kept when the set is done, or a gradient was written by steps
    // outside.
    bool is_kept(SetIndex set, Item item) const { return bit(kept_, set, item); }
    // For the set as lower end: returns whether the item outlives the segment above.
    bool outlives(SetIndex set, Item item) const { return bit(outlives_, set, item); }

    const FlatOp& op(OpIndex op) const { return ops_[op]; }
    Node producer(Value x) const { return producer_[x]; }
    Node last_reader(Value x) const { return last_reader_[x]; }  // its highest forward reader, or its producer
    Bytes bytes(Item item) const { return bytes_[item]; }
    Bytes read_bytes(Node v) const { return read_bytes_[v]; }  // of what v writes, the bytes that any step reads
    // Returns the time to recompute those of 64 nodes, from node 64 `k` on, that have a bit.
    Quanta recompute_quanta(int k, uint64_t nodes) const {
        Quanta sum = 0;
        for (size_t byte = static_cast<size_t>(k) * 8; nodes; ++byte, nodes >>= 8)
            sum += recompute_quanta_[byte * 256 + (nodes & 255)];
        return sum;
    }
    Bytes inputs() const { return inputs_; }
    Bytes widest_op_bytes() const;
    int values() const { return values_; }
    int nodes() const { return nodes_; }

  private:
    bool bit(const std::vector<uint64_t>& bits, SetIndex set, Item item) const {
        return (bits[static_cast<size_t>(set) * item_words_ + (item >> 6)] >> (item & 63)) & 1;
    }
    void set_bit(std::vector<uint64_t>& bits, SetIndex set, Item item) {
        bits[static_cast<size_t>(set) * item_words_ + (item >> 6)] |= uint64_t{1} << (item & 63);
    }
    void sum_recompute_quanta();
    bool any_in(const std::vector<Node>& nodes, SetIndex set) const;
    bool any_out(const std::vector<Node>& nodes, SetIndex set) const;
    bool is_kept_value(Value x, SetIndex set) const;
    bool is_needed_inside(Value x, SetIndex set) const;
    void flatten_ops();
    void describe(SetIndex set, SetFacts& facts);
    void describe_values(SetIndex set, SetFacts& facts);
    void describe_gradients(SetIndex set, SetFacts& facts);
    void describe_recomputes(SetIndex set, const std::vector<Node>& members, SetFacts& facts) const;
    void describe_peak_witnesses(SetIndex set, const std::vector<Node>& members, SetFacts& facts) const;
    std::vector<Node> nodes_resident_at(Step s, SetIndex set, const std::vector<Node>& members,
                                        const std::vector<Step>& last_read) const;
    Bytes carried_bytes_at(Step s, SetIndex set, const std::vector<Step>& last_touch) const;
    Bytes step_bytes(Step s, SetIndex set) const;
    Bytes recompute_wave_bytes(std::vector<Value> needed, SetIndex set, std::vector<char>& recomputed) const;
    std::vector<Step> choose_witness_steps(SetIndex set, const std::vector<Node>& members) const;

    const StepGraph& graph_;
    const LowerSets& sets_;
    const int values_, nodes_, item_words_;
    Bytes inputs_ = 0;
    std::vector<Node> producer_, last_reader_;  // per value
    std::vector<Bytes> bytes_, read_bytes_;     // per item; per node
    std::vector<Quanta> recompute_quanta_;      // of each subset of nodes 8 i to 8 i + 7: 256 entries for each i
    std::vector<Item> items_;                   // of all FlatOps
    std::vector<Overlay> overlays_;             // of all FlatOps
    std::vector<FlatOp> ops_;
    std::vector<uint64_t> kept_, outlives_;  // item_words_ per set
    std::vector<SetFacts> facts_;
};

}  // namespace layermem::planning::liveness
