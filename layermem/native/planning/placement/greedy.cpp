#include "planning/placement/greedy.h"

#include <algorithm>
#include <limits>
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

// Answers "the largest of values[first, last)": tables of the largest of 1, 2, 4, ... values from each place on.
class Largest {
public:
    explicit Largest(std::vector<Units> values) : tables_{std::move(values)} {
        size_t n = tables_[0].size();
        for (size_t width = 1; 2 * width <= n; width *= 2) {
            const std::vector<Units>& half = tables_.back();
            std::vector<Units> table(n - 2 * width + 1);
            for (size_t i = 0; i < table.size(); ++i) table[i] = std::max(half[i], half[i + width]);
            tables_.push_back(std::move(table));
        }
    }

    Units of(Section first, Section last) const {
        int level = 0;
        while (2 << level <= last - first) ++level;
        return std::max(tables_[level][first], tables_[level][last - (1 << level)]);
    }

private:
    std::vector<std::vector<Units>> tables_;
};

// Blocks that live through the fullest section come first: they have the least choice.
Order by_pressure(const Problem& p) {
    Largest load(section_loads(p.blocks, p.sections));
    return ordered(p, [&](const Block& b) { return load.of(b.first, b.last); });
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

Packed pack_best(const Problem& problem, Steps& steps) {
    Packed best{{{}, std::numeric_limits<Units>::max()}, ""};
    for (Fit fit : {Fit::lowest, Fit::tightest}) {
        for (const Rule& rule : rules()) {
            Layout layout = pack(problem, rule.order(problem), fit, steps);
            if (layout.height < best.layout.height) best = {std::move(layout), std::string("greedy by ") + rule.name};
            if (best.layout.height <= problem.target || steps.over()) return best;
        }
    }
    return best;
}

}  // namespace layermem::placing
