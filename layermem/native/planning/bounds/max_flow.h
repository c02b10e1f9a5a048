// Maximum flow, and with it a minimum cut, by Dinic's algorithm on whole numbers.
//
// Any flow is a lower bound of every cut, so capacities that are rounded down give a bound that no rounding breaks.
#pragma once

#include <cstdint>
#include <vector>

namespace layermem::planning::bounds {

class MaxFlow {
  public:
    static constexpr int64_t kInfinite = int64_t{1} << 60;

    explicit MaxFlow(int nodes) : first_(nodes, -1) {}
    int add_node();
    // Id of the edge, for set_capacity.
    int add_edge(int from, int to);
    void set_capacity(int edge, int64_t capacity) { capacity_[edge] = capacity; }

    // Returns the flow from `source` to `sink` with the current capacities; each call starts without flow.
    int64_t run(int source, int sink);
    // Returns, after run(), whether the node is on the source's side of the minimum cut.
    bool on_source_side(int node) const { return level_[node] >= 0; }

  private:
    bool find_levels(int source, int sink);
    int64_t augment(int source, int sink);

    // Edge e goes to to_[e], and edge e ^ 1 goes back; next_ links the edges of a node.
    std::vector<int> first_, next_, to_, level_, current_, queue_, path_;
    std::vector<int64_t> capacity_, left_;
};

}  // namespace layermem::planning::bounds
