// One pass over the sets, as in Dijkstra's algorithm on a graph whose nodes are sorted topologically.
//
// min_kept_[set] is the least number of bytes that any chain keeps when its forward pass has reached `set`, among
// chains whose segments all fit the budget; kUnreached if there is none.  It ignores recomputation time except for the
// limit per segment, so it is a necessary condition for a chain and the start of the searches that minimize the peak.
#include "planning/recompute/reachability.h"

#include <algorithm>

namespace layermem::planning::recompute {

// Sets are sorted by size, so the values of `from` are final when it is visited.  Two passes use the bounds of peaks,
// which are cheap: forward, the least kept on each set; backward, the most that may be kept there so that V stays
// reachable.  Outside of the corridor between the two, no peak has to be exact, and no chain leads through these sets.
Reachability::Reachability(const LowerSets& sets, SegmentGraph& graph, Bytes inputs, Family upto, Bytes budget_bytes,
                           Quanta max_recompute, Deadline& deadline)
    : min_kept_(sets.size(), kUnreached), from_(sets.size(), -1) {
    const SetIndex last = sets.size() - 1;
    // The bytes kept by earlier segments stay resident throughout a later one, so its peak has less budget.
    auto visit_edges = [&](SetIndex from, Bytes kept, auto visit) {
        graph.for_each_edge(from, upto, CostBox{budget_bytes - kept, max_recompute}, deadline, visit);
    };
    std::vector<Bytes> least(sets.size(), kUnreached);
    least[0] = inputs;
    for (SetIndex from = 0; from < last; ++from) {
        if (least[from] >= kUnreached) continue;
        visit_edges(from, least[from], [&](const SegmentEdge& edge) {
            least[edge.to] = std::min(least[edge.to], least[from] + edge.kept);
        });
    }
    std::vector<Bytes> most(sets.size(), -kUnreached);
    most[last] = least[last] < kUnreached ? kUnreached : -kUnreached;
    for (SetIndex from = last - 1; from >= 0; --from) {
        if (least[from] >= kUnreached || least[last] >= kUnreached) continue;
        visit_edges(from, least[from], [&](const SegmentEdge& edge) {
            most[from] = std::max(most[from], std::min(budget_bytes - edge.peak, most[edge.to] - edge.kept));
        });
    }
    min_kept_[0] = inputs;
    for (SetIndex from = 0; from < last; ++from) {
        if (!is_reachable(from)) continue;
        const Bytes kept = min_kept_[from];
        if (kept > most[from]) {
            min_kept_[from] = kUnreached;
            continue;
        }
        visit_edges(from, kept, [&](SegmentEdge& edge) {
            auto is_better = [&] {
                const Bytes after = kept + edge.kept;
                return kept + edge.peak <= budget_bytes && after < min_kept_[edge.to] && after <= most[edge.to];
            };
            if (!graph.make_exact(from, edge, deadline, is_better)) return;
            min_kept_[edge.to] = kept + edge.kept;
            from_[edge.to] = from;
        });
    }
}

// Goes from V back along the recorded predecessors.
Chain Reachability::min_kept_chain() const {
    Chain chain;
    for (auto set = static_cast<SetIndex>(min_kept_.size()) - 1; set > 0; set = from_[set]) chain.push_back(set);
    std::reverse(chain.begin(), chain.end());
    return chain;
}

}  // namespace layermem::planning::recompute
