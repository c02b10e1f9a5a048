#include "planning/recompute/segment_graph.h"

#include <algorithm>

namespace layermem::planning {

Arcs::Arcs(const LowerSets& sets, SegmentCosts& costs) : sets_(sets), costs_(costs) {
    for (auto& by_source : sources_) by_source.resize(sets.size());
    for (int set = 0; set < sets.size(); ++set) targets_[static_cast<int>(sets.tier(set))].push_back(set);
}

std::vector<Arc>& Arcs::known(int from, Family tier, const Box& box, Watch& watch) {
    Source& source = sources_[static_cast<int>(tier)][from];
    for (const Box& done : source.boxes)
        if (done.holds(box)) return source.arcs;
    const size_t before = source.arcs.size();
    const auto& targets = targets_[static_cast<int>(tier)];
    for (auto to = std::upper_bound(targets.begin(), targets.end(), from); to != targets.end(); ++to) {
        watch.tick();
        if (!sets_.subset(from, *to)) continue;
        const Box place{costs_.peak_bound(from, *to, box.peak), costs_.time_bound(from, *to, box.time)};
        if (!box.holds(place)) continue;
        const bool seen = std::any_of(source.boxes.begin(), source.boxes.end(),
                                      [&](const Box& done) { return done.holds(place); });
        if (seen) continue;
        source.arcs.push_back({costs_.kept_bound(from, *to), place.peak, *to, static_cast<uint32_t>(place.time), 0});
    }
    count_ += source.arcs.size() - before;
    source.boxes.erase(std::remove_if(source.boxes.begin(), source.boxes.end(),
                                      [&](const Box& done) { return box.holds(done); }),
                       source.boxes.end());
    source.boxes.push_back(box);
    return source.arcs;
}

void Arcs::settle(int from, Arc& arc, Watch& watch) {
    if (arc.settled) return;
    watch.tick();
    const Segment cost = costs_.evaluate(from, arc.to);
    arc = {cost.kept, cost.peak, arc.to, static_cast<uint32_t>(cost.recompute), 1};
    ++settled_;
}

}  // namespace layermem::planning
