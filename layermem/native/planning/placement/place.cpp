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

namespace layermem {
namespace {

using placing::Block;
using placing::Packed;
using placing::Problem;
using placing::Units;

[[noreturn]] void refuse(size_t i, const std::string& what) {
    throw std::invalid_argument("interval " + std::to_string(i) + " " + what);
}

Units units(Bytes bytes, Bytes align) { return (bytes + align - 1) / align; }

void validate(const PlaceRequest& r) {
    size_t n = r.size.size();
    if (r.begin.size() != n || r.end.size() != n || (!r.fixed.empty() && r.fixed.size() != n)) {
        throw std::invalid_argument("begin, end, size and fixed must have one entry per interval");
    }
    if (r.align <= 0) throw std::invalid_argument("align must be positive");
    if (r.floor < 0) throw std::invalid_argument("floor must not be negative");
    Bytes room = INT64_MAX / 4 - r.floor;
    for (size_t i = 0; i < n; ++i) {
        if (r.end[i] < r.begin[i]) refuse(i, "ends before it begins");
        if (r.size[i] < 0) refuse(i, "has a negative size");
        if (r.size[i] > room - r.align) refuse(i, "makes the sum of sizes overflow");
        room -= units(r.size[i], r.align) * r.align;
        Bytes fixed = r.fixed.empty() ? -1 : r.fixed[i];
        if (fixed < 0) continue;
        if (fixed % r.align) refuse(i, "is fixed at an offset that is no multiple of " + std::to_string(r.align));
        if (fixed > INT64_MAX / 4) refuse(i, "is fixed at an offset that overflows");
    }
}

bool ever_alive(const PlaceRequest& r, size_t i) { return r.size[i] > 0 && r.begin[i] < r.end[i]; }

struct Model {
    Problem problem;
    std::vector<size_t> block_of, pin_of;  // the interval that each block, each pin, is
};

Model model_of(const PlaceRequest& r) {
    std::vector<size_t> alive;
    std::vector<placing::Stretch> stretches;
    for (size_t i = 0; i < r.size.size(); ++i) {
        if (!ever_alive(r, i)) continue;
        alive.push_back(i);
        stretches.push_back({r.begin[i], r.end[i]});
    }
    Model model;
    Problem& p = model.problem;
    std::vector<Block> blocks(alive.size());
    p.sections = placing::assign_sections(stretches, blocks);
    for (size_t k = 0; k < alive.size(); ++k) {
        size_t i = alive[k];
        blocks[k].size = units(r.size[i], r.align);
        bool pinned = !r.fixed.empty() && r.fixed[i] >= 0;
        (pinned ? p.pins : p.blocks).push_back(blocks[k]);
        (pinned ? model.pin_of : model.block_of).push_back(i);
        if (pinned) p.pin_offset.push_back(r.fixed[i] / r.align);
    }
    p.floor = units(r.floor, r.align);
    p.target = r.target / r.align;
    bound_height(p);
    return model;
}

void refuse_colliding_pins(const Model& model) {
    const Problem& p = model.problem;
    std::vector<size_t> order(p.pins.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p.pin_offset[a] < p.pin_offset[b]; });
    for (size_t i = 0; i < order.size(); ++i) {
        Units top = p.pin_offset[order[i]] + p.pins[order[i]].size;
        for (size_t j = i + 1; j < order.size() && p.pin_offset[order[j]] < top; ++j) {
            if (!meet(p.pins[order[i]], p.pins[order[j]])) continue;
            refuse(model.pin_of[order[j]], "is fixed on top of interval " + std::to_string(model.pin_of[order[i]]));
        }
    }
}

Packed solve(const Problem& problem, placing::Steps& steps) {
    placing::Reduced reduced = placing::stack_lifelong(problem);
    Packed found{{{}, 0}, "stacked"};
    if (!reduced.problem.blocks.empty()) {
        found = placing::pack_best(reduced.problem, steps);
        placing::Layout tight = placing::tighten(reduced.problem, found.layout, steps);
        if (tight.height < found.layout.height) found = {tight, "search"};
    }
    found.layout = placing::widen(problem, reduced, found.layout);
    return found;
}

}  // namespace

PlaceResult place(const PlaceRequest& request, const Poll& poll) {
    auto started = std::chrono::steady_clock::now();
    validate(request);
    Model model = model_of(request);
    refuse_colliding_pins(model);
    placing::Steps steps(request.time_limit, poll);
    Packed found = solve(model.problem, steps);

    PlaceResult result;
    Bytes align = request.align;
    result.offset.assign(request.size.size(), model.problem.floor * align);
    for (size_t i = 0; i < request.fixed.size(); ++i) {
        if (request.fixed[i] >= 0) result.offset[i] = request.fixed[i];
    }
    for (size_t b = 0; b < model.block_of.size(); ++b) {
        result.offset[model.block_of[b]] = found.layout.offset[b] * align;
    }
    result.height = found.layout.height * align;
    result.max_live = max_live(request);
    result.bound = model.problem.bound * align;
    result.method = found.method;
    result.cut_short = steps.cut_short();
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    return result;
}

LiveProfile live_profile(const PlaceRequest& request) {
    validate(request);
    std::map<Tick, Bytes> change;
    for (size_t i = 0; i < request.size.size(); ++i) {
        if (!ever_alive(request, i)) continue;
        Bytes size = units(request.size[i], request.align) * request.align;
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

Bytes max_live(const PlaceRequest& request) {
    LiveProfile profile = live_profile(request);
    return profile.live.empty() ? 0 : *std::max_element(profile.live.begin(), profile.live.end());
}

}  // namespace layermem
