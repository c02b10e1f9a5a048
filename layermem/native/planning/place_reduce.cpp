#include "planning/place_reduce.h"

#include <algorithm>

namespace layermem::placing {
namespace {

// The level up to which pins and floor fill every section without a hole, or -1 where there is no such level.
Units flat_ground(const Problem& problem) {
    std::vector<Units> ground = ground_of(problem), above_floor(problem.sections, 0);
    for (size_t i = 0; i < problem.pins.size(); ++i) {
        const Block& pin = problem.pins[i];
        Units bottom = std::max(problem.floor, problem.pin_offset[i]);
        Units size = std::max<Units>(0, problem.pin_offset[i] + pin.size - bottom);
        for (Section s = pin.first; s < pin.last; ++s) above_floor[s] += size;
    }
    for (Section s = 0; s < problem.sections; ++s) {
        if (ground[s] != ground[0] || above_floor[s] != ground[0] - problem.floor) return -1;
    }
    return ground[0];
}

}  // namespace

std::vector<Units> ground_of(const Problem& problem) {
    std::vector<Units> ground(problem.sections, problem.floor);
    for (size_t i = 0; i < problem.pins.size(); ++i) {
        Units top = problem.pin_offset[i] + problem.pins[i].size;
        for (Section s = problem.pins[i].first; s < problem.pins[i].last; ++s) ground[s] = std::max(ground[s], top);
    }
    return ground;
}

Reduced stack_lifelong(const Problem& problem) {
    Reduced reduced;
    reduced.problem = problem;
    reduced.stacked.offset.assign(problem.blocks.size(), 0);
    Units level = problem.sections ? flat_ground(problem) : -1;
    reduced.problem.blocks.clear();
    for (size_t i = 0; i < problem.blocks.size(); ++i) {
        const Block& b = problem.blocks[i];
        if (level >= 0 && b.first == 0 && b.last == problem.sections) {
            reduced.stacked.offset[i] = level;
            level += b.size;
        } else {
            reduced.problem.blocks.push_back(b);
            reduced.origin.push_back(static_cast<int32_t>(i));
        }
    }
    if (level < 0) return reduced;
    reduced.problem.floor = level;
    reduced.problem.pins.clear();
    reduced.problem.pin_offset.clear();
    return reduced;
}

Layout widen(const Problem& problem, const Reduced& reduced, const Layout& layout) {
    Layout whole = reduced.stacked;
    for (size_t k = 0; k < reduced.origin.size(); ++k) whole.offset[reduced.origin[k]] = layout.offset[k];
    whole.height = height_of(problem, whole.offset);
    return whole;
}

}  // namespace layermem::placing
