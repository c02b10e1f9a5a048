// Extracts a core, and turns its solution into one of the whole problem.
//
// Ids are different in both problems: `origin` maps a residency of the part to its id in the whole problem.
#include "planning/placement/core.h"

#include <algorithm>

namespace layermem::planning::placement {

Core extract_core(const Problem& problem, double share) {
    std::vector<Granules> load = section_loads(problem.residencies, problem.sections);
    auto threshold = static_cast<Granules>(share * static_cast<double>(*std::max_element(load.begin(), load.end())));
    // Prefix sums of "section s is full": a lifespan has a full section if they differ between its ends.
    std::vector<int32_t> full_before(problem.sections + 1, 0);
    for (Section s = 0; s < problem.sections; ++s) full_before[s + 1] = full_before[s] + (load[s] >= threshold);

    Core core;
    std::vector<Lifespan> lifespans;
    for (size_t i = 0; i < problem.residencies.size(); ++i) {
        const Residency& r = problem.residencies[i];
        // No full section in its lifespan: the residency is part of the rest.
        if (full_before[r.begin] == full_before[r.end]) continue;
        core.origin.push_back(static_cast<ResidencyId>(i));
        core.problem.residencies.push_back(r);
        lifespans.push_back({r.begin, r.end});
    }
    // Fewer residencies have fewer maximal sets: the sections of the whole are compressed once more.
    core.problem.sections = assign_sections(lifespans, core.problem.residencies);
    core.problem.floor = problem.floor;
    core.problem.target = problem.target;
    set_bound(core.problem);
    return core;
}

// The core becomes fixed, and the greedy rules place the rest: they never end without a solution.
Solution pack_around_core(const Problem& problem, const Core& core, const Solution& solution, StepBudget& budget) {
    std::vector<char> in_core(problem.residencies.size(), 0);
    Problem rest = problem;
    rest.residencies.clear();
    for (size_t k = 0; k < core.origin.size(); ++k) {
        in_core[core.origin[k]] = 1;
        rest.fixed.push_back(problem.residencies[core.origin[k]]);
        rest.fixed_offset.push_back(solution.offset[k]);
    }
    std::vector<ResidencyId> origin;
    for (size_t i = 0; i < problem.residencies.size(); ++i) {
        if (in_core[i]) continue;
        origin.push_back(static_cast<ResidencyId>(i));
        rest.residencies.push_back(problem.residencies[i]);
    }
    // The height covers core and rest alike: fixed residencies count in solution_height().
    Solution around = pack_best(rest, budget).solution;
    Solution whole{std::vector<Granules>(problem.residencies.size()), around.height};
    for (size_t k = 0; k < core.origin.size(); ++k) whole.offset[core.origin[k]] = solution.offset[k];
    for (size_t k = 0; k < origin.size(); ++k) whole.offset[origin[k]] = around.offset[k];
    return whole;
}

}  // namespace layermem::planning::placement
