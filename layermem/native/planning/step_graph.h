// The graph of the recomputation planner: forward nodes, backward steps, and the bytes between them.
//
//      x --> conv --> c --> relu --> r --> loss --> l         nodes   conv relu loss      values     x c r l
//            dx? <-- [conv]  <-- dc <-- [relu] <-- dr <-- [loss]     steps [loss] [relu] [conv]   gradients dr dc
//                     reads x            reads r        reads r
//
//   value     bytes that one forward node writes, or an input of the net
//   node      one forward op: reads values, writes values; its first run and its recomputation may cost differently
//   recompute a later run of a node, for values that were freed
//   gradient  bytes that backward steps write (the first write allocates, later ones accumulate) and read
//   step      one backward op: reads values and gradients, writes gradients; it belongs to a node, its owner, and runs
//             in the backward phase of the segment of its owner
//   overlay   a permission: written bytes may replace read ones, if that read is the last one
//
// Nodes are added in topological order, steps in the order in which a plain backward pass runs them; ids count from 0.
// A planner may rely on these invariants, which finish() checks: a value is read only after it is written; a gradient
// is first touched by a write; a step never runs before a step of a later segment whose gradients it reads (its owner
// is an ancestor of theirs, or the same node).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "planning/types.h"

namespace layermem::planning {

struct ValueInfo {
    Bytes bytes = 0;
    bool inner = false;                 // of a node that stands for several ops: freed though its outputs are kept
    bool kept = false;                  // never freed before its last use (an input, batch statistics)
    Node producer = -1;                 // -1: an input, resident from the start
    std::vector<Node> readers;          // forward nodes, ascending
    std::vector<Node> backward_owners;  // owners of the steps that read it, ascending, once each
    bool used() const { return !readers.empty() || !backward_owners.empty(); }
};

struct NodeInfo {
    double time = 0, recompute_time = 0;  // first run and recomputation, in any unit
    Quanta quanta = 0, recompute_quanta = 0;
    Bytes workspace_bytes = 0;
    std::vector<Value> reads, writes;
    std::vector<Overlay> overlays;               // {value written, value read}
    std::vector<Node> predecessors, successors;  // neighbours through values, ascending, once each
    std::vector<Step> steps;                     // that it owns, ascending
};

struct GradInfo {
    Bytes bytes = 0;
    bool final = false;         // stays to the end of the step (an accumulated parameter gradient)
    std::vector<Node> writers;  // owners of the steps that write it, ascending, once each
    std::vector<Node> users;    // owners of the steps that read or write it, likewise
};

struct StepInfo {
    Node owner = -1;
    double time = 0;
    Bytes workspace_bytes = 0;
    std::vector<Value> values;  // read
    std::vector<Grad> reads, writes;
    std::vector<Overlay> over_values;  // {gradient written, value read}
    std::vector<Overlay> over_grads;   // {gradient written, gradient read}
};

class StepGraph {
  public:
    Value add_value(Bytes bytes, bool kept, bool inner = false);
    Node add_node(std::vector<Value> reads, std::vector<Value> writes, double time, double recompute_time,
                  Bytes workspace_bytes, std::vector<Overlay> overlays);
    Grad add_gradient(Bytes bytes, bool final);
    Step add_step(Node owner, std::vector<Value> values, std::vector<Grad> reads, std::vector<Grad> writes, double time,
                  Bytes workspace_bytes, std::vector<Overlay> over_values, std::vector<Overlay> over_grads);

    // The paper's model of backward (Kusumoto et al. 2019, section 3): one value and one gradient of the same size
    // per node; the gradient of v is one step that reads the gradients of v's readers and every value they read.
    static StepGraph value_gradients(const std::vector<double>& time, const std::vector<Bytes>& bytes,
                                     const std::vector<std::pair<Node, Node>>& edges);

    // Checks the graph and fills the derived lists; additions are rejected afterwards.  Throws std::invalid_argument.
    void finish();
    bool finished() const { return finished_; }

    int node_count() const { return static_cast<int>(nodes.size()); }
    int step_count() const { return static_cast<int>(steps.size()); }
    int item_count() const { return static_cast<int>(values.size() + grads.size()); }
    Bytes item_bytes(Item item) const {
        const auto count = static_cast<int>(values.size());
        return item < count ? values[item].bytes : grads[item - count].bytes;
    }
    Bytes node_bytes(Node v) const;  // of all it writes: M of the paper
    double time_of(Quanta q) const { return static_cast<double>(q) / quanta_per_unit; }

    std::vector<ValueInfo> values;
    std::vector<NodeInfo> nodes;
    std::vector<GradInfo> grads;
    std::vector<StepInfo> steps;
    double quanta_per_unit = 1;

  private:
    void require_open() const;
    void set_quanta();
    void link_neighbours();
    void check_gradients() const;
    bool finished_ = false;
};

}  // namespace layermem::planning
