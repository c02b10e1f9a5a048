#include "planning/place_greedy.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace layermem::placing {
namespace {

// Ties fall back to size, then lifetime, then start, then the block's number, so an order is never left to the sort.
template <class Key>
Order ordered(const Problem& problem, Key key) {
    const auto& blocks = problem.blocks;
    Order order(blocks.size());
    std::iota(order.begin(), order.end(), 0);
    auto rank = [&](int32_t i) {
        const Block& b = blocks[i];
        return std::make_tuple(-key(b), -b.size, b.first - b.last, b.first, i);
    };
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return rank(a) < rank(b); });
    return order;
}

Order by_size(const Problem& p) {
    return ordered(p, [](const Block& b) { return b.size; });
}

Order by_lifetime(const Problem& p) {
    return ordered(p, [](const Block& b) { return b.last - b.first; });
}

Order by_area(const Problem& p) {
    return ordered(p, [](const Block& b) { return static_cast<double>(b.size) * (b.last - b.first); });
}

Order by_start(const Problem& p) {
    return ordered(p, [](const Block& b) { return -b.first; });
}

// Blocks that live through the fullest section come first: they have the least choice.
Order by_pressure(const Problem& p) {
    std::vector<Units> load = section_loads(p.blocks, p.sections);
    return ordered(p, [&](const Block& b) { return *std::max_element(&load[b.first], &load[b.last - 1] + 1); });
}

}  // namespace

const std::vector<Rule>& rules() {
    static const std::vector<Rule> all = {{"size", by_size},
                                          {"lifetime", by_lifetime},
                                          {"area", by_area},
                                          {"start", by_start},
                                          {"pressure", by_pressure}};
    return all;
}

Layout pack(const Problem& problem, const Order& order, Fit fit, Steps& steps) {
    Shelf shelf(problem);
    Layout layout;
    layout.offset.resize(problem.blocks.size());
    int64_t seen = 0;
    for (int32_t i : order) {
        const Block& block = problem.blocks[i];
        layout.offset[i] = shelf.find(block, fit);
        shelf.put(block, layout.offset[i]);
        steps.take(shelf.looked_at() - seen + 1);
        seen = shelf.looked_at();
    }
    layout.height = height_of(problem, layout.offset);
    return layout;
}

}  // namespace layermem::placing
