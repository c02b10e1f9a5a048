// Greedy placement: five orders times two fits, at most ten passes.
//
// On most nets one of the orders reaches the bound, and the exact search is not needed.  An order sorts by one
// property; the best one depends on the net, so all are tried.
#include "planning/placement/greedy.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

namespace layermem::planning::placement {
namespace {

// Ties fall back to size, then lifetime, then start, then the id, so that no order depends on the sort algorithm.
template <class Key>
Order sort_by(const Problem& problem, Key key) {
    const auto& residencies = problem.residencies;
    Order order(residencies.size());
    std::iota(order.begin(), order.end(), 0);
    auto rank = [&](ResidencyId i) {
        const Residency& r = residencies[i];
        return std::make_tuple(-key(r), -r.size, r.begin - r.end, r.begin, i);
    };
    std::sort(order.begin(), order.end(), [&](ResidencyId a, ResidencyId b) { return rank(a) < rank(b); });
    return order;
}

// Large residencies first, as in bin packing: small ones fill the remaining gaps.
Order by_size(const Problem& p) {
    return sort_by(p, [](const Residency& r) { return r.size; });
}

// Long residencies first: they are the walls between which short ones are stacked.
Order by_lifetime(const Problem& p) {
    return sort_by(p, [](const Residency& r) { return r.end - r.begin; });
}

// Areas are floating point: sizes times sections may exceed 64 bits.
Order by_area(const Problem& p) {
    return sort_by(p, [](const Residency& r) { return static_cast<double>(r.size) * (r.end - r.begin); });
}

// The order of allocation, as in an allocator at run time.
Order by_start(const Problem& p) {
    return sort_by(p, [](const Residency& r) { return -r.begin; });
}

// Range maximum in O(1): a sparse table, whose row k holds the largest of each 2^k consecutive values.
class RangeMaximum {
  public:
    explicit RangeMaximum(std::vector<Granules> values) : tables_{std::move(values)} {
        size_t n = tables_[0].size();
        // Row k + 1 from row k: the larger of two neighbouring halves.
        for (size_t width = 1; 2 * width <= n; width *= 2) {
            const std::vector<Granules>& half = tables_.back();
            std::vector<Granules> table(n - 2 * width + 1);
            for (size_t i = 0; i < table.size(); ++i) table[i] = std::max(half[i], half[i + width]);
            tables_.push_back(std::move(table));
        }
    }

    // Returns the maximum of sections [begin, end): two rows that overlap cover any range.
    Granules of(Section begin, Section end) const {
        int level = 0;
        while (2 << level <= end - begin) ++level;
        return std::max(tables_[level][begin], tables_[level][end - (1 << level)]);
    }

  private:
    std::vector<std::vector<Granules>> tables_;
};

// Residencies that are alive in the section of largest load come first: they have the fewest offsets to choose from.
Order by_pressure(const Problem& p) {
    RangeMaximum load(section_loads(p.residencies, p.sections));
    return sort_by(p, [&](const Residency& r) { return load.of(r.begin, r.end); });
}

}  // namespace

const std::vector<OrderingRule>& ordering_rules() {
    static const std::vector<OrderingRule> kRules = {{"size", by_size},
                                                     {"lifetime", by_lifetime},
                                                     {"area", by_area},
                                                     {"start", by_start},
                                                     {"pressure", by_pressure}};
    return kRules;
}

// Each residency is placed once and never moved.  A step is an index entry inspected, or a residency placed.
Solution pack(const Problem& problem, const Order& order, Fit fit, StepBudget& budget) {
    OffsetIndex index(problem);
    Solution solution;
    solution.offset.resize(problem.residencies.size());
    int64_t counted = 0;
    for (ResidencyId i : order) {
        const Residency& residency = problem.residencies[i];
        solution.offset[i] = index.find_offset(residency, fit);
        index.insert(residency, solution.offset[i]);
        budget.spend(index.steps() - counted + 1);
        counted = index.steps();
    }
    solution.height = solution_height(problem, solution.offset);
    return solution;
}

// First fit under every rule comes before best fit under any: it is quicker, and seldom higher.
NamedSolution pack_best(const Problem& problem, StepBudget& budget) {
    NamedSolution best{{{}, std::numeric_limits<Granules>::max()}, ""};
    for (Fit fit : {Fit::first, Fit::best}) {
        for (const OrderingRule& rule : ordering_rules()) {
            Solution solution = pack(problem, rule.order(problem), fit, budget);
            // A later rule must be strictly better, so the method named is the first that reaches the height.
            if (solution.height < best.solution.height) {
                best = {std::move(solution), std::string("greedy by ") + rule.name};
            }
            if (best.solution.height <= problem.target || budget.exhausted()) return best;
        }
    }
    return best;
}

}  // namespace layermem::planning::placement
