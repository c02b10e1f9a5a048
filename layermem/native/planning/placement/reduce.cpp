// Residencies that live for the whole step, stacked at the bottom, and the ground that fixed residencies leave.
//
// In training most bytes are parameters, gradients and optimizer state.  They are alive all the time, so their offsets
// are decided by one loop, and the search sees activations only.
#include "planning/placement/reduce.h"

#include <algorithm>
#include <numeric>

namespace layermem::planning::placement {
namespace {

// Returns the part of a fixed residency above the floor; the part below the floor conflicts with nothing.
Residency clip_to_floor(const Problem& problem, size_t fixed) {
    Residency part = problem.fixed[fixed];
    Granules bottom = std::max(problem.floor, problem.fixed_offset[fixed]);
    part.size = std::max<Granules>(0, problem.fixed_offset[fixed] + part.size - bottom);
    return part;
}

// Returns the level up to which fixed residencies and floor fill every section without a hole, or -1 if there is none.
// A section has no hole if the sizes above its floor add up to its ground level.
Granules find_solid_level(const Problem& problem) {
    std::vector<Residency> parts;
    parts.reserve(problem.fixed.size());
    for (size_t i = 0; i < problem.fixed.size(); ++i) parts.push_back(clip_to_floor(problem, i));
    std::vector<Granules> ground = ground_levels(problem);
    std::vector<Granules> filled = section_loads(parts, problem.sections);
    for (Section s = 0; s < problem.sections; ++s) {
        if (ground[s] != ground[0] || filled[s] != ground[0] - problem.floor) return -1;
    }
    return ground.empty() ? -1 : ground[0];
}

}  // namespace

// By falling top, each fixed residency sets the level of its sections that have none yet.
std::vector<Granules> ground_levels(const Problem& problem) {
    auto top = [&](size_t i) { return problem.fixed_offset[i] + problem.fixed[i].size; };
    std::vector<size_t> highest;
    for (size_t i = 0; i < problem.fixed.size(); ++i) {
        if (top(i) > problem.floor) highest.push_back(i);
    }
    std::sort(highest.begin(), highest.end(), [&](size_t a, size_t b) { return top(a) > top(b); });
    // Sections that no fixed residency touches keep the floor as their level.
    std::vector<Granules> ground(problem.sections, problem.floor);
    // open[s] == s: section s has no level yet.  Otherwise it links towards the next one without a level: a
    // disjoint-set forest with path halving, so that each section is set once in nearly constant time.
    std::vector<Section> open(problem.sections + 1);
    std::iota(open.begin(), open.end(), 0);
    auto next_open = [&](Section s) {
        while (open[s] != s) {
            open[s] = open[open[s]];
            s = open[s];
        }
        return s;
    };
    for (size_t i : highest) {
        for (Section s = next_open(problem.fixed[i].begin); s < problem.fixed[i].end; s = next_open(s)) {
            ground[s] = top(i);
            open[s] = s + 1;
        }
    }
    return ground;
}

Reduction stack_full_lifetime(const Problem& problem) {
    Reduction reduction;
    reduction.problem = problem;
    reduction.stacked.offset.assign(problem.residencies.size(), 0);
    Granules level = find_solid_level(problem);
    reduction.problem.residencies.clear();
    for (size_t i = 0; i < problem.residencies.size(); ++i) {
        const Residency& r = problem.residencies[i];
        if (level >= 0 && r.begin == 0 && r.end == problem.sections) {
            reduction.stacked.offset[i] = level;
            level += r.size;
        } else {
            reduction.problem.residencies.push_back(r);
            reduction.origin.push_back(static_cast<ResidencyId>(i));
        }
    }
    if (level < 0) return reduction;  // nothing was stacked: the fixed residencies stay part of the problem
    reduction.problem.floor = level;
    reduction.problem.fixed.clear();
    reduction.problem.fixed_offset.clear();
    return reduction;
}

// Offsets of the reduced problem are absolute, since its floor was raised: they are copied as they are.
Solution expand(const Problem& problem, const Reduction& reduction, const Solution& solution) {
    Solution whole = reduction.stacked;
    for (size_t k = 0; k < reduction.origin.size(); ++k) whole.offset[reduction.origin[k]] = solution.offset[k];
    whole.height = solution_height(problem, whole.offset);
    return whole;
}

}  // namespace layermem::planning::placement
