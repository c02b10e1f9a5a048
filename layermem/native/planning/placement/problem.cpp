// Compression of ticks to sections, loads and bounds.
//
// n residencies over any number of ticks become at most n sections, so that every algorithm behind this file is
// independent of the length of the schedule.
#include "planning/placement/problem.h"

#include <algorithm>
#include <tuple>

namespace layermem::planning::placement {

// A sweep line over begins and ends.  A section closes at the first end after a begin.  At one tick ends come before
// begins, because lifespans are half-open.
Section assign_sections(const std::vector<Lifespan>& lifespans, std::vector<Residency>& residencies) {
    struct Event {
        int64_t at;
        bool begins;
        size_t i;
    };
    std::vector<Event> events;
    for (size_t i = 0; i < lifespans.size(); ++i) {
        events.push_back({lifespans[i].begin, true, i});
        events.push_back({lifespans[i].end, false, i});
    }
    // false < true: the ends of a tick are sorted before its begins.
    std::sort(events.begin(), events.end(),
              [](const Event& a, const Event& b) { return std::tie(a.at, a.begins) < std::tie(b.at, b.begins); });
    Section sections = 0;  // closed so far, and so the index of the open one
    bool after_begin = false;
    for (const Event& e : events) {
        if (e.begins) {
            residencies[e.i].begin = sections;
        } else {
            sections += after_begin;
            residencies[e.i].end = sections;
        }
        after_begin = e.begins;
    }
    return sections;
}

// Computes differences at the borders, then their running sum: O(residencies + sections).
std::vector<Granules> section_loads(const std::vector<Residency>& residencies, Section sections) {
    std::vector<Granules> load(sections + 1, 0);
    for (const Residency& r : residencies) {
        load[r.begin] += r.size;
        load[r.end] -= r.size;
    }
    for (Section s = 1; s < sections; ++s) load[s] += load[s - 1];
    // The last entry only received the ends.
    load.resize(sections);
    return load;
}

// Two bounds: the top of each fixed residency, and the load of each section above the floor, including the parts of
// fixed residencies above the floor.
void set_bound(Problem& problem) {
    // Only fixed residencies lie below the floor, so the load above it must fit on top of it.
    std::vector<Residency> above_floor = problem.residencies;
    Granules bound = 0;
    for (size_t i = 0; i < problem.fixed.size(); ++i) {
        Residency part = problem.fixed[i];
        Granules top = problem.fixed_offset[i] + part.size;
        bound = std::max(bound, top);
        part.size = top - std::max(problem.floor, problem.fixed_offset[i]);
        if (part.size > 0) above_floor.push_back(part);
    }
    if (!problem.residencies.empty()) {
        for (Granules load : section_loads(above_floor, problem.sections)) {
            bound = std::max(bound, problem.floor + load);
        }
    }
    problem.bound = bound;
    problem.target = std::max(problem.target, bound);
}

Granules solution_height(const Problem& problem, const std::vector<Granules>& offset) {
    Granules height = 0;
    for (size_t i = 0; i < problem.residencies.size(); ++i) {
        height = std::max(height, offset[i] + problem.residencies[i].size);
    }
    for (size_t i = 0; i < problem.fixed.size(); ++i) {
        height = std::max(height, problem.fixed_offset[i] + problem.fixed[i].size);
    }
    return height;
}

}  // namespace layermem::planning::placement
