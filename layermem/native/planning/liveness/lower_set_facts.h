// What the cost of a segment takes from each of its two lower sets alone, and the graph laid out for fast walks.
//
//      items   values, then gradients         op   nodes, then steps
//      touch   [ values read | written ]  of a node,  [ values read | gradients read or written ]  of a step
#pragma once
#include <cstdint>
#include <vector>

#include "planning/step_graph.h"
#include "planning/lower_sets.h"

namespace layermem::planning {

struct FlatOp {
    const int *touch, *middle, *touch_end;  // items; `middle` parts what the picture's bar parts
    const int *write, *write_end;           // items written
    const Overlay *overlay, *overlay_end;   // {item written, item read}
    Bytes workspace;
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
    std::vector<int> taken_;
    Bytes bytes_ = 0;
};

// A step of a set when much is resident, whatever the segment begins with.
struct Witness {
    Node owner;
    std::vector<uint64_t> nodes;  // all that steps read of these is resident, as far as they are in the segment,
    Bytes node_bytes;             // so much in all;
    Bytes beside;                 // and its own gradients, its workspace, and what was carried in and is still wanted
};

class SetFacts {
  public:
    SetFacts(const StepGraph& graph, const LowerSets& sets);

    // Of one set L.
    struct Facts {
        Ticks time = 0;           // T(L)
        Bytes bytes = 0;          // M(L)
        Ticks boundary_time = 0;  // T(d(L))
        Bytes outside = 0;        // M(d+(L) \ L) + M(d-(d+(L)) \ L)
        std::vector<Node> boundary;   // d(L): nodes that a node outside reads
        Bytes carried = 0;            // bytes that steps outside leave for steps inside
        Bytes fixed_bytes = 0;        // of values inside that are marked `kept`
        std::vector<std::pair<Node, Bytes>> held;  // nodes inside, with what else is kept of them when L is done
        std::vector<Value> dying;     // kept when L is done, but wanted by nothing in L any more
        Bytes dying_bytes = 0;
        // Of a segment that ends in L, whatever it begins with (nodes below it do not count):
        std::vector<uint64_t> must_replay;  // nodes of which a step reads something that is not kept
        Ticks must_time = 0;                // their replay time
        std::vector<Witness> witnesses;     // the fullest first; of any segment some owner is in it
        // Of nodes in L, as the lower end of a segment:
        Bytes read_bytes = 0;  // bytes that any step reads
        Ticks read_time = 0;   // replay time of nodes of which any step reads something
    };
    const Facts& of(int set) const { return facts_[set]; }
    // As the upper end: a value inside is kept when the set is done; a gradient has been written by steps outside.
    bool held(int set, int item) const { return bit(held_, set, item); }
    // As the lower end: the item outlives the segment above.
    bool stays(int set, int item) const { return bit(stays_, set, item); }

    const FlatOp& op(int op) const { return ops_[op]; }
    Node producer(Value x) const { return producer_[x]; }
    Node last_reader(Value x) const { return last_reader_[x]; }  // its highest forward reader, or its producer
    Bytes bytes(int item) const { return bytes_[item]; }
    Bytes read_bytes(Node v) const { return read_bytes_[v]; }
    Bytes inputs() const { return inputs_; }
    Bytes widest_op() const;
    int values() const { return values_; }
    int nodes() const { return nodes_; }

  private:
    bool bit(const std::vector<uint64_t>& bits, int set, int item) const {
        return (bits[static_cast<size_t>(set) * item_words_ + (item >> 6)] >> (item & 63)) & 1;
    }
    void set_bit(std::vector<uint64_t>& bits, int set, int item) {
        bits[static_cast<size_t>(set) * item_words_ + (item >> 6)] |= uint64_t{1} << (item & 63);
    }
    bool any_in(const std::vector<Node>& nodes, int set) const;
    bool any_out(const std::vector<Node>& nodes, int set) const;
    bool cached(Value x, int set) const;
    bool wanted_inside(Value x, int set) const;
    void flatten();
    void describe(int set, Facts& facts);
    void describe_flow(int set, Facts& facts);
    void describe_replays(int set, const std::vector<Node>& members, Facts& facts) const;
    void describe_witness(int set, const std::vector<Node>& members, Facts& facts) const;
    std::vector<Node> resident_at(Step s, int set, const std::vector<Node>& members,
                                  const std::vector<Step>& last_read) const;
    Bytes carried_past(Step s, int set, const std::vector<Step>& last_touch) const;
    Bytes own_bytes(Step s, int set) const;
    Bytes wave(std::vector<Value> wanted, int set, std::vector<char>& rebuilt) const;
    std::vector<Step> first_steps(int set, const std::vector<Node>& members) const;

    const StepGraph& graph_;
    const LowerSets& sets_;
    const int values_, nodes_, item_words_;
    Bytes inputs_ = 0;
    std::vector<Node> producer_, last_reader_;
    std::vector<Bytes> bytes_, read_bytes_;
    std::vector<int> items_;          // of all FlatOps
    std::vector<Overlay> overlays_;   // of all FlatOps
    std::vector<FlatOp> ops_;
    std::vector<uint64_t> held_, stays_;
    std::vector<Facts> facts_;
};

}  // namespace layermem::planning
