// One pass over the sets, as in Dijkstra's algorithm on a graph whose nodes are sorted topologically.
//
// min_kept_[set] is the least number of bytes that any chain keeps when its forward pass has reached `set`, among
// chains whose segments all fit the budget; kUnreached if there is none.  It ignores recomputation time except for the
// limit per segment, so it is a necessary condition for a chain and the start of the searches that minimize the peak.
#include "planning/recompute/reachability.h"

#include <algorithm>

namespace layermem::planning::recompute {

// Sets are sorted by size, so min_kept_[from] is final when its turn comes.  Bounds reject most edges; the others are
// tested once more with their exact costs.
Reachability::Reachability(const LowerSets& sets, SegmentGraph& graph, Bytes inputs, Family upto, Bytes budget_bytes,
                           Quanta max_recompute, Deadline& deadline)
    : min_kept_(sets.size(), kUnreached), from_(sets.size(), -1) {
    min_kept_[0] = inputs;
    for (SetIndex from = 0; from < sets.size() - 1; ++from) {
        if (!is_reachable(from)) continue;
        // What earlier segments keep is resident throughout this one, so it is taken from the budget of its peak.
        const CostBox box{budget_bytes - min_kept_[from], max_recompute};
        graph.for_each_edge(from, upto, box, deadline, [&](SegmentEdge& edge) {
            auto keeps_less = [&] {
                return box.contains({edge.peak, edge.recompute}) && min_kept_[from] + edge.kept < min_kept_[edge.to];
            };
            if (!graph.make_exact(from, edge, deadline, keeps_less)) return;
            min_kept_[edge.to] = min_kept_[from] + edge.kept;
            from_[edge.to] = from;
        });
    }
}

// From V back along the recorded predecessors.
Chain Reachability::min_kept_chain() const {
    Chain chain;
    for (auto set = static_cast<SetIndex>(min_kept_.size()) - 1; set > 0; set = from_[set]) chain.push_back(set);
    std::reverse(chain.begin(), chain.end());
    return chain;
}

}  // namespace layermem::planning::recompute
