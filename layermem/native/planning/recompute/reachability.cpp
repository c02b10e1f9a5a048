#include "planning/recompute/reachability.h"

#include <algorithm>

namespace layermem::planning {

Reach::Reach(const LowerSets& sets, Arcs& arcs, Bytes inputs, Family upto, Bytes budget, Ticks allowed, Watch& watch)
    : least_(sets.size(), kUnreached), from_(sets.size(), -1) {
    least_[0] = inputs;
    for (int from = 0; from < sets.size() - 1; ++from) {
        if (!at(from)) continue;
        const Box box{budget - least_[from], allowed};
        arcs.each(from, upto, box, watch, [&](Arc& arc) {
            if (least_[from] + arc.kept >= least_[arc.to]) return;
            arcs.settle(from, arc, watch);
            if (!box.holds({arc.peak, arc.recompute}) || least_[from] + arc.kept >= least_[arc.to]) return;
            least_[arc.to] = least_[from] + arc.kept;
            from_[arc.to] = from;
        });
    }
}

std::vector<int> Reach::leanest() const {
    std::vector<int> chain;
    for (int set = static_cast<int>(least_.size()) - 1; set > 0; set = from_[set]) chain.push_back(set);
    std::reverse(chain.begin(), chain.end());
    return chain;
}

}  // namespace layermem::planning
