// Shortest paths at 16 multipliers at once, and the bounds that follow from them.
//
// For each multiplier r, an edge costs recompute + r * bytes.  Suffixes start at V with cost 0, prefixes at {} with the
// price of the inputs.  Weak duality: no chain within the budget takes less than path cost - r * budget.
#include "planning/recompute/lagrangian_bounds.h"

#include <algorithm>
#include <cmath>

namespace layermem::planning::recompute {
namespace {

constexpr Bound kNoPath = 1e300;
constexpr Bound kRoundingError = 1e-6;  // quanta by which a sum of many products may be too high

}  // namespace

// The first multiplier is 0: the shortest path in time alone.  The others are powers of two around time / budget, at
// which the whole budget costs as much as the whole time.
LagrangianBounds::LagrangianBounds(int sets, Bytes budget_bytes, Quanta time)
    : sets_(sets), budget_(static_cast<double>(budget_bytes)) {
    const Multiplier scale = std::max<double>(1, static_cast<double>(time)) / std::max(1.0, budget_);
    for (int m = 0; m < kMultipliers; ++m) multipliers_[m] = m == 0 ? 0 : scale * std::pow(2.0, m - 5);
}

// Uses steps of 2^(1/4): the dual function is concave, so its maximum is near the best multiplier of the wide range.
void LagrangianBounds::refine_around(Multiplier centre) {
    if (centre <= 0) return;
    constexpr int kMiddle = kMultipliers / 2;
    for (int m = 1; m < kMultipliers; ++m) multipliers_[m] = centre * std::pow(2.0, (m - kMiddle) / 4.0);
}

Multiplier LagrangianBounds::best_multiplier(Bytes inputs) const {
    // The bound of the whole chain at multiplier m, from the suffix of {}.
    int best = 0;
    auto bound = [&](int m) { return suffix_[m] + multipliers_[m] * (static_cast<double>(inputs) - budget_); };
    for (int m = 1; m < kMultipliers; ++m)
        if (bound(m) > bound(best)) best = m;
    return multipliers_[best];
}

void LagrangianBounds::fill(std::vector<Bound>& paths, SetIndex set, Bytes kept) {
    // Only the start has a cost; all other sets wait for their first edge.
    paths.assign(static_cast<size_t>(sets_) * kMultipliers, kNoPath);
    for (int m = 0; m < kMultipliers; ++m) paths[at(set) + m] = multipliers_[m] * static_cast<double>(kept);
}

// Each bound starts at 0, since times are not negative, and gives up kRoundingError so that it never exceeds the truth.
Bound LagrangianBounds::suffix_bound(SetIndex set, Bytes kept) const {
    if (set == sets_ - 1) return 0;
    Bound most = 0;
    for (int m = 0; m < kMultipliers; ++m)
        most = std::max(most, suffix_[at(set) + m] + multipliers_[m] * (static_cast<double>(kept) - budget_));
    return most - kRoundingError;
}

Bound LagrangianBounds::prefix_bound(SetIndex set, Bytes max_kept) const {
    Bound most = 0;
    for (int m = 0; m < kMultipliers; ++m)
        most = std::max(most, prefix_[at(set) + m] - multipliers_[m] * static_cast<double>(max_kept));
    return most - kRoundingError;
}

Bound LagrangianBounds::edge_bound(SetIndex from, SetIndex to, Quanta recompute, Bytes bytes) const {
    Bound most = 0;
    const Bound* prefix = &prefix_[at(from)];
    const Bound* suffix = &suffix_[at(to)];
    for (int m = 0; m < kMultipliers; ++m)
        most = std::max(most, prefix[m] + suffix[m] + multipliers_[m] * (static_cast<double>(bytes) - budget_));
    return static_cast<Bound>(recompute) + most - kRoundingError;
}

}  // namespace layermem::planning::recompute
