#include "planning/placement/reduce.h"

#include <algorithm>
#include <numeric>

namespace layermem::placing {
namespace {

// The part of a pin above the floor; what lies below it is in nobody's way.
Block above_floor(const Problem& problem, size_t pin) {
    Block part = problem.pins[pin];
    Units bottom = std::max(problem.floor, problem.pin_offset[pin]);
    part.size = std::max<Units>(0, problem.pin_offset[pin] + part.size - bottom);
    return part;
}

// The level up to which pins and floor fill every section without a hole, or -1 where there is no such level.
Units flat_ground(const Problem& problem) {
    std::vector<Block> parts;
    for (size_t i = 0; i < problem.pins.size(); ++i) parts.push_back(above_floor(problem, i));
    std::vector<Units> ground = ground_of(problem), filled = section_loads(parts, problem.sections);
    for (Section s = 0; s < problem.sections; ++s) {
        if (ground[s] != ground[0] || filled[s] != ground[0] - problem.floor) return -1;
    }
    return ground.empty() ? -1 : ground[0];
}

}  // namespace

// Highest pins first, each gives its level to the sections that have none yet.
std::vector<Units> ground_of(const Problem& problem) {
    auto top = [&](size_t i) { return problem.pin_offset[i] + problem.pins[i].size; };
    std::vector<size_t> highest;
    for (size_t i = 0; i < problem.pins.size(); ++i) {
        if (top(i) > problem.floor) highest.push_back(i);
    }
    std::sort(highest.begin(), highest.end(), [&](size_t a, size_t b) { return top(a) > top(b); });
    std::vector<Units> ground(problem.sections, problem.floor);
    std::vector<Section> open(problem.sections + 1);  // the next section without a level: a chain, shortened on the way
    std::iota(open.begin(), open.end(), 0);
    auto next_open = [&](Section s) {
        while (open[s] != s) s = open[s] = open[open[s]];
        return s;
    };
    for (size_t i : highest) {
        for (Section s = next_open(problem.pins[i].first); s < problem.pins[i].last; s = next_open(s)) {
            ground[s] = top(i);
            open[s] = s + 1;
        }
    }
    return ground;
}

Reduced stack_lifelong(const Problem& problem) {
    Reduced reduced;
    reduced.problem = problem;
    reduced.stacked.offset.assign(problem.blocks.size(), 0);
    Units level = flat_ground(problem);
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
