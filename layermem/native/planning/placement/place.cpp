// Entry point of placement: from bytes and ticks to the problem of the algorithms, and back.
//
//      validate              arrays of one length, sizes whose sum does not overflow
//      build_problem         ticks to sections, bytes to granules; fixed residencies separated from free ones
//      stack_full_lifetime   residencies of the whole step at the bottom, without search
//      pack_best             greedy rules, which reach the bound on most training steps
//      tighten               exact search below the greedy height, otherwise
//      expand                back to the whole problem, then to bytes
#include "planning/placement/place.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <stdexcept>
#include <string>

#include "planning/placement/greedy.h"
#include "planning/placement/problem.h"
#include "planning/placement/reduce.h"
#include "planning/placement/step_budget.h"
#include "planning/placement/tighten.h"

namespace layermem::planning::placement {
namespace {

// Offsets and sums of sizes stay below this, so that adding a few of them cannot overflow.
constexpr Bytes kMaxBytes = INT64_MAX / 4;

[[noreturn]] void reject(size_t i, const std::string& what) {
    throw std::invalid_argument("interval " + std::to_string(i) + " " + what);
}

Granules to_granules(Bytes bytes, Bytes align) { return (bytes + align - 1) / align; }

void validate(const PlacementRequest& r) {
    size_t n = r.size.size();
    if (r.begin.size() != n || r.end.size() != n || (!r.fixed.empty() && r.fixed.size() != n)) {
        throw std::invalid_argument("begin, end, size and fixed must have one entry per interval");
    }
    if (r.align <= 0) throw std::invalid_argument("align must be positive");
    if (r.floor < 0) throw std::invalid_argument("floor must not be negative");
    // The highest conceivable placement stacks everything above the floor: its height must be representable.
    Bytes remaining = kMaxBytes - r.floor;
    for (size_t i = 0; i < n; ++i) {
        if (r.end[i] < r.begin[i]) reject(i, "ends before it begins");
        if (r.size[i] < 0) reject(i, "has a negative size");
        if (r.size[i] > remaining - r.align) reject(i, "makes the sum of sizes overflow");
        remaining -= to_granules(r.size[i], r.align) * r.align;
        Bytes fixed = r.fixed.empty() ? -1 : r.fixed[i];
        if (fixed < 0) continue;
        if (fixed % r.align) reject(i, "is fixed at an offset that is no multiple of " + std::to_string(r.align));
        if (fixed > kMaxBytes) reject(i, "is fixed at an offset that overflows");
    }
}

// Residencies without bytes or without ticks take no part in the problem; they get the floor as offset.
bool occupies_bytes(const PlacementRequest& r, size_t i) { return r.size[i] > 0 && r.begin[i] < r.end[i]; }

struct IndexedProblem {
    Problem problem;
    std::vector<size_t> free_interval;   // per residency to be placed: its index in the request
    std::vector<size_t> fixed_interval;  // per fixed residency: its index in the request
};

// Ticks become sections, bytes become granules, and fixed residencies are separated from free ones.
IndexedProblem build_problem(const PlacementRequest& r) {
    // Indices into the request of all intervals that take part, in order.
    std::vector<size_t> intervals;
    std::vector<Lifespan> lifespans;
    for (size_t i = 0; i < r.size.size(); ++i) {
        if (!occupies_bytes(r, i)) continue;
        intervals.push_back(i);
        lifespans.push_back({r.begin[i], r.end[i]});
    }
    IndexedProblem indexed;
    Problem& p = indexed.problem;
    std::vector<Residency> residencies(intervals.size());
    p.sections = assign_sections(lifespans, residencies);
    for (size_t k = 0; k < intervals.size(); ++k) {
        size_t i = intervals[k];
        residencies[k].size = to_granules(r.size[i], r.align);
        // validate() has made sure that fixed offsets are multiples of the alignment.
        bool is_fixed = !r.fixed.empty() && r.fixed[i] >= 0;
        (is_fixed ? p.fixed : p.residencies).push_back(residencies[k]);
        (is_fixed ? indexed.fixed_interval : indexed.free_interval).push_back(i);
        if (is_fixed) p.fixed_offset.push_back(r.fixed[i] / r.align);
    }
    // The floor is rounded up, so that nothing begins below it; the target down, so that it is never exceeded.
    p.floor = to_granules(r.floor, r.align);
    p.target = r.target / r.align;
    set_bound(p);
    return indexed;
}

// By rising offset, each fixed residency is compared with those that begin below its top.
void reject_overlapping_fixed(const IndexedProblem& indexed) {
    const Problem& p = indexed.problem;
    std::vector<size_t> order(p.fixed.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p.fixed_offset[a] < p.fixed_offset[b]; });
    for (size_t i = 0; i < order.size(); ++i) {
        // Only those that begin below this top can overlap in address; they follow in the order.
        Granules top = p.fixed_offset[order[i]] + p.fixed[order[i]].size;
        for (size_t j = i + 1; j < order.size() && p.fixed_offset[order[j]] < top; ++j) {
            if (!overlap_in_time(p.fixed[order[i]], p.fixed[order[j]])) continue;
            std::string below = std::to_string(indexed.fixed_interval[order[i]]);
            reject(indexed.fixed_interval[order[j]], "is fixed on top of interval " + below);
        }
    }
}

// Reduces, applies greedy rules, then searches exactly if the best greedy height is above the target.
NamedSolution solve(const Problem& problem, StepBudget& budget) {
    Reduction reduction = stack_full_lifetime(problem);
    NamedSolution best{{{}, 0}, "stacked"};
    // If everything lives for the whole step, the stack is the solution.
    if (!reduction.problem.residencies.empty()) {
        best = pack_best(reduction.problem, budget);
        Solution tight = tighten(reduction.problem, best.solution, budget);
        if (tight.height < best.solution.height) best = {tight, "search"};
    }
    best.solution = expand(problem, reduction, best.solution);
    return best;
}

}  // namespace

// Offsets of residencies that occupy no bytes are the floor; fixed ones have the requested offset.
Placement place(const PlacementRequest& request, const Poll& poll) {
    auto started = std::chrono::steady_clock::now();
    validate(request);
    IndexedProblem indexed = build_problem(request);
    reject_overlapping_fixed(indexed);
    StepBudget budget(request.step_seconds, poll);
    NamedSolution best = solve(indexed.problem, budget);

    Placement placement;
    Bytes align = request.align;
    placement.offset.assign(request.size.size(), indexed.problem.floor * align);
    for (size_t i = 0; i < request.fixed.size(); ++i) {
        if (request.fixed[i] >= 0) placement.offset[i] = request.fixed[i];
    }
    for (size_t b = 0; b < indexed.free_interval.size(); ++b) {
        placement.offset[indexed.free_interval[b]] = best.solution.offset[b] * align;
    }
    placement.height = best.solution.height * align;
    placement.max_live = max_live(request);
    placement.bound = indexed.problem.bound * align;
    placement.method = best.method;
    placement.seconds = std::chrono::duration<Seconds>(std::chrono::steady_clock::now() - started).count();
    return placement;
}

// Intervals are half-open: ends and begins of one tick cancel in one entry of the map.
LiveProfile live_profile(const PlacementRequest& request) {
    validate(request);
    std::map<Tick, Bytes> change;
    for (size_t i = 0; i < request.size.size(); ++i) {
        if (!occupies_bytes(request, i)) continue;
        Bytes size = to_granules(request.size[i], request.align) * request.align;
        change[request.begin[i]] += size;
        change[request.end[i]] -= size;
    }
    LiveProfile profile;
    Bytes live = 0;
    for (auto [tick, bytes] : change) {
        live += bytes;
        profile.tick.push_back(tick);
        profile.live.push_back(live);
    }
    return profile;
}

Bytes max_live(const PlacementRequest& request) {
    LiveProfile profile = live_profile(request);
    return profile.live.empty() ? 0 : *std::max_element(profile.live.begin(), profile.live.end());
}

}  // namespace layermem::planning::placement
