#include "planning/placement/core.h"

#include <algorithm>

namespace layermem::placing {

Core core_of(const Problem& problem, double share) {
    std::vector<Units> load = section_loads(problem.blocks, problem.sections);
    auto full = static_cast<Units>(share * static_cast<double>(*std::max_element(load.begin(), load.end())));
    std::vector<int32_t> full_before(problem.sections + 1, 0);  // full sections before each
    for (Section s = 0; s < problem.sections; ++s) full_before[s + 1] = full_before[s] + (load[s] >= full);

    Core core;
    std::vector<Stretch> stretches;
    for (size_t i = 0; i < problem.blocks.size(); ++i) {
        const Block& b = problem.blocks[i];
        if (full_before[b.first] == full_before[b.last]) continue;
        core.origin.push_back(static_cast<int32_t>(i));
        core.problem.blocks.push_back(b);
        stretches.push_back({b.first, b.last});
    }
    core.problem.sections = assign_sections(stretches, core.problem.blocks);
    core.problem.floor = problem.floor;
    core.problem.target = problem.target;
    bound_height(core.problem);
    return core;
}

Layout pack_around(const Problem& problem, const Core& core, const Layout& layout, Steps& steps) {
    std::vector<char> placed(problem.blocks.size(), 0);
    Problem rest = problem;
    rest.blocks.clear();
    for (size_t k = 0; k < core.origin.size(); ++k) {
        placed[core.origin[k]] = 1;
        rest.pins.push_back(problem.blocks[core.origin[k]]);
        rest.pin_offset.push_back(layout.offset[k]);
    }
    std::vector<int32_t> origin;
    for (size_t i = 0; i < problem.blocks.size(); ++i) {
        if (placed[i]) continue;
        origin.push_back(static_cast<int32_t>(i));
        rest.blocks.push_back(problem.blocks[i]);
    }
    Layout around = pack_best(rest, steps).layout;
    Layout whole{std::vector<Units>(problem.blocks.size()), around.height};
    for (size_t k = 0; k < core.origin.size(); ++k) whole.offset[core.origin[k]] = layout.offset[k];
    for (size_t k = 0; k < origin.size(); ++k) whole.offset[origin[k]] = around.offset[k];
    return whole;
}

}  // namespace layermem::placing
