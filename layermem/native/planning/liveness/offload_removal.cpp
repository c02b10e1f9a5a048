// One layout of the plan per group.
#include "planning/liveness/offload_removal.h"

#include <algorithm>
#include <stdexcept>

namespace layermem::planning::liveness {

std::optional<size_t> fewest_offloads(const LayoutGraph& graph, const Order& order, const std::vector<Gap>& decisions,
                                      const std::vector<Gap>& offloads, const CopyTiming& timing, Bytes budget_bytes) {
    std::vector<Gap> tried;
    auto fits = [&](std::ptrdiff_t count) {
        tried.assign(decisions.begin(), decisions.end());
        tried.insert(tried.end(), offloads.begin(), offloads.begin() + count);
        return graph.peak_live_bytes(timing.overlays, graph.lay_out(order, tried, timing)) <= budget_bytes;
    };
    std::ptrdiff_t fails = -1, enough = 0;
    const auto all = static_cast<std::ptrdiff_t>(offloads.size());
    while (!fits(enough)) {
        if (enough == all) return std::nullopt;
        fails = enough;
        enough = std::min(std::max<std::ptrdiff_t>(2 * enough, 1), all);
    }
    while (enough - fails > 1) {
        const std::ptrdiff_t middle = (fails + enough) / 2;
        (fits(middle) ? enough : fails) = middle;
    }
    return enough;
}

OffloadRemoval remove_offloads(const LayoutGraph& graph, const Order& order, const std::vector<Gap>& decisions,
                               const std::vector<int32_t>& group_of, const CopyTiming& timing, Bytes budget_bytes,
                               const std::function<bool(const std::vector<int32_t>&)>& fits_beside,
                               const std::function<void()>& interrupt) {
    if (group_of.size() != decisions.size()) throw std::invalid_argument("each decision needs the number of its group");
    OffloadRemoval result{{}, graph.estimate_seconds(graph.lay_out(order, decisions, timing))};
    const int32_t groups = group_of.empty() ? 0 : *std::max_element(group_of.begin(), group_of.end()) + 1;
    std::vector<char> is_removed(static_cast<size_t>(groups), 0);
    std::vector<Gap> left;
    for (int32_t group = 0; group < groups; ++group) {
        if (interrupt) interrupt();
        is_removed[group] = 1;
        left.clear();
        bool is_state = false;
        for (size_t i = 0; i < decisions.size(); ++i) {
            if (group_of[i] < 0 || !is_removed[group_of[i]]) left.push_back(decisions[i]);
            is_state = is_state || (group_of[i] == group && decisions[i].use < 0);
        }
        const Layout layout = graph.lay_out(order, left, timing);
        result.removed.push_back(group);
        if (graph.peak_live_bytes(timing.overlays, layout) <= budget_bytes &&
            (!is_state || !fits_beside || fits_beside(result.removed))) {
            const Seconds seconds = graph.estimate_seconds(layout);
            if (seconds <= result.seconds) {
                result.seconds = seconds;
                continue;
            }
        }
        result.removed.pop_back();
        is_removed[group] = 0;
    }
    return result;
}

}  // namespace layermem::planning::liveness
