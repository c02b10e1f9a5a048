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
                               const std::vector<std::vector<int32_t>>& groups, const CopyTiming& timing,
                               Bytes budget_bytes, const std::function<bool(const std::vector<int32_t>&)>& fits_beside,
                               const std::function<void()>& interrupt) {
    for (const std::vector<int32_t>& group : groups)
        for (const int32_t i : group)
            if (i < 0 || static_cast<size_t>(i) >= decisions.size())
                throw std::invalid_argument("a group has the position of a decision that there is not");
    OffloadRemoval result{{}, graph.estimate_seconds(graph.lay_out(order, decisions, timing))};
    std::vector<char> is_gone(decisions.size(), 0), is_tried;
    std::vector<Gap> left;
    for (size_t number = 0; number < groups.size(); ++number) {
        if (interrupt) interrupt();
        is_tried = is_gone;
        bool is_state = false;
        for (const int32_t i : groups[number]) {
            is_tried[i] = 1;
            is_state = is_state || decisions[i].use < 0;
        }
        if (is_tried == is_gone) continue;
        left.clear();
        for (size_t i = 0; i < decisions.size(); ++i)
            if (!is_tried[i]) left.push_back(decisions[i]);
        const Layout layout = graph.lay_out(order, left, timing);
        result.removed.push_back(static_cast<int32_t>(number));
        if (graph.peak_live_bytes(timing.overlays, layout) <= budget_bytes &&
            (!is_state || !fits_beside || fits_beside(result.removed))) {
            const Seconds seconds = graph.estimate_seconds(layout);
            if (seconds <= result.seconds) {
                result.seconds = seconds;
                is_gone.swap(is_tried);
                continue;
            }
        }
        result.removed.pop_back();
    }
    return result;
}

}  // namespace layermem::planning::liveness
