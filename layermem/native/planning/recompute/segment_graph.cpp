// Lazy generation of edges: by boxes of (peak, recompute), and with lower bounds before exact costs.
//
// The number of pairs is quadratic in the number of sets, so neither all edges nor all costs are ever computed.
#include "planning/recompute/segment_graph.h"

#include <algorithm>

namespace layermem::planning::recompute {

SegmentGraph::SegmentGraph(const LowerSets& sets, liveness::SegmentCosts& costs) : sets_(sets), costs_(costs) {
    for (auto& by_source : sources_) by_source.resize(sets.size());
    for (SetIndex set = 0; set < sets.size(); ++set) targets_[static_cast<int>(sets.tier(set))].push_back(set);
}

// Returns the edges from one set to those of one tier: the stored ones, and the new ones of `box`.
std::vector<SegmentEdge>& SegmentGraph::generate(SetIndex from, Family tier, const CostBox& box, Deadline& deadline) {
    Source& source = sources_[static_cast<int>(tier)][from];
    for (const CostBox& done : source.boxes)
        if (done.contains(box)) return source.edges;
    const auto& targets = targets_[static_cast<int>(tier)];
    // Sets are sorted by size, so every superset of `from` has a higher index.
    for (auto to = std::upper_bound(targets.begin(), targets.end(), from); to != targets.end(); ++to) {
        deadline.check();
        if (!sets_.subset(from, *to)) continue;
        // A bound stops counting at the side of the box, so an edge outside costs little.  Time, the quicker bound, is
        // first.
        const Quanta time = costs_.recompute_time(from, *to, box.recompute);
        if (time > box.recompute) continue;
        const CostBox bound{costs_.peak_bound(from, *to, box.peak), time};
        if (bound.peak > box.peak) continue;
        const bool is_stored = std::any_of(source.boxes.begin(), source.boxes.end(),
                                           [&](const CostBox& done) { return done.contains(bound); });
        if (is_stored) continue;
        const auto recompute = static_cast<uint32_t>(bound.recompute);
        source.edges.push_back({costs_.kept_bytes(from, *to), bound.peak, *to, recompute, 0});
    }
    // Boxes inside the new one are no longer needed.
    source.boxes.erase(std::remove_if(source.boxes.begin(), source.boxes.end(),
                                      [&](const CostBox& done) { return box.contains(done); }),
                       source.boxes.end());
    source.boxes.push_back(box);
    return source.edges;
}

}  // namespace layermem::planning::recompute
