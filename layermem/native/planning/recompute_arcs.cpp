#include "planning/recompute_arcs.h"

#include <algorithm>

namespace layermem {

Arcs::Arcs(const LowerSets& sets, SegmentCosts& costs) : sets_(sets), costs_(costs) {
    for (auto& by_source : sources_) by_source.resize(sets.size());
    for (int set = 0; set < sets.size(); ++set) targets_[static_cast<int>(sets.tier(set))].push_back(set);
}

const std::vector<Arc>& Arcs::known(int from, Family tier, const Box& box, Watch& watch) {
    Source& source = sources_[static_cast<int>(tier)][from];
    for (const Box& done : source.boxes)
        if (done.holds(box)) return source.arcs;
    std::vector<Arc> fresh;
    const auto& targets = targets_[static_cast<int>(tier)];
    for (auto to = std::upper_bound(targets.begin(), targets.end(), from); to != targets.end(); ++to) {
        if (!sets_.subset(from, *to)) continue;
        const Box place{costs_.peak_bound(from, *to, box.peak), costs_.time_bound(from, *to, box.time)};
        if (!box.holds(place)) continue;
        const bool seen = std::any_of(source.boxes.begin(), source.boxes.end(),
                                      [&](const Box& done) { return done.holds(place); });
        if (seen) continue;
        watch.tick();
        fresh.push_back({*to, costs_.evaluate(from, *to)});
    }
    count_ += fresh.size();
    source.arcs.insert(source.arcs.end(), fresh.begin(), fresh.end());
    source.boxes.erase(std::remove_if(source.boxes.begin(), source.boxes.end(),
                                      [&](const Box& done) { return box.holds(done); }),
                       source.boxes.end());
    source.boxes.push_back(box);
    return source.arcs;
}

}  // namespace layermem
