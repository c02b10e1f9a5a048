// Open branches are in a heap, the lowest bound on top.
#include "planning/bounds/whole_values.h"

#include <algorithm>
#include <limits>

namespace layermem::planning::bounds {

namespace {

constexpr double kSame = 1 - 1e-9;  // relative: a branch this close to the best is skipped

struct Branch {
    Reruns reruns;
    Relaxation relaxation;
};

bool is_above(const Branch& a, const Branch& b) { return a.relaxation.seconds > b.relaxation.seconds; }

}  // namespace

Seconds least_seconds_of_whole_values(Moment& moment, Bytes budget_bytes, std::optional<Bytes> host_bytes,
                                      Seconds known_seconds, int64_t steps) {
    const int64_t end = moment.steps() + steps;
    Seconds reached = std::numeric_limits<Seconds>::infinity();
    std::vector<Branch> branches;
    const auto add = [&](Reruns reruns, Seconds at_least) {
        Relaxation relaxation = moment.relax(reruns, budget_bytes, host_bytes, 0);
        relaxation.seconds = std::max(relaxation.seconds, at_least);
        reached = std::min(reached, relaxation.reached);
        if (relaxation.seconds >= reached && relaxation.seconds > relaxation.reached) return;
        branches.push_back({std::move(reruns), relaxation});
        std::push_heap(branches.begin(), branches.end(), is_above);
    };
    add(moment.possible_reruns(budget_bytes, host_bytes), 0);
    while (!branches.empty()) {
        const Relaxation lowest = branches.front().relaxation;
        if (lowest.seconds >= reached * kSame) return std::min(lowest.seconds, reached);
        if (lowest.open < 0 || reached <= known_seconds || moment.steps() >= end) return lowest.seconds;
        std::pop_heap(branches.begin(), branches.end(), is_above);
        Reruns reruns = std::move(branches.back().reruns);
        branches.pop_back();
        for (const Rerun choice : {Rerun::kAlways, Rerun::kNever}) {
            reruns[lowest.open] = choice;
            add(reruns, lowest.seconds);
        }
    }
    return reached;
}

}  // namespace layermem::planning::bounds
