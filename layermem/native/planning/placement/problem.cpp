#include "planning/placement/problem.h"

#include <algorithm>
#include <tuple>

namespace layermem::placing {

// A section closes at the first end after a begin.  At one moment ends come before begins: stretches are half-open.
Section assign_sections(const std::vector<Stretch>& stretches, std::vector<Block>& blocks) {
    struct Event {
        int64_t at;
        bool begins;
        size_t i;
    };
    std::vector<Event> events;
    for (size_t i = 0; i < stretches.size(); ++i) {
        events.push_back({stretches[i].begin, true, i});
        events.push_back({stretches[i].end, false, i});
    }
    std::sort(events.begin(), events.end(),
              [](const Event& a, const Event& b) { return std::tie(a.at, a.begins) < std::tie(b.at, b.begins); });
    Section sections = 0;
    bool fresh = false;
    for (const Event& e : events) {
        if (e.begins) {
            blocks[e.i].first = sections;
        } else {
            sections += fresh;
            blocks[e.i].last = sections;
        }
        fresh = e.begins;
    }
    return sections;
}

std::vector<Units> section_loads(const std::vector<Block>& blocks, Section sections) {
    std::vector<Units> load(sections + 1, 0);
    for (const Block& b : blocks) {
        load[b.first] += b.size;
        load[b.last] -= b.size;
    }
    for (Section s = 1; s < sections; ++s) load[s] += load[s - 1];
    load.resize(sections);
    return load;
}

void bound_height(Problem& problem) {
    std::vector<Block> above_floor = problem.blocks;
    Units bound = 0;
    for (size_t i = 0; i < problem.pins.size(); ++i) {
        Block pin = problem.pins[i];
        Units top = problem.pin_offset[i] + pin.size;
        bound = std::max(bound, top);
        pin.size = top - std::max(problem.floor, problem.pin_offset[i]);
        if (pin.size > 0) above_floor.push_back(pin);
    }
    if (!problem.blocks.empty()) {
        for (Units load : section_loads(above_floor, problem.sections)) bound = std::max(bound, problem.floor + load);
    }
    problem.bound = bound;
    problem.target = std::max(problem.target, bound);
}

Units height_of(const Problem& problem, const std::vector<Units>& offset) {
    Units height = 0;
    for (size_t i = 0; i < problem.blocks.size(); ++i) height = std::max(height, offset[i] + problem.blocks[i].size);
    for (size_t i = 0; i < problem.pins.size(); ++i) {
        height = std::max(height, problem.pin_offset[i] + problem.pins[i].size);
    }
    return height;
}

}  // namespace layermem::placing
