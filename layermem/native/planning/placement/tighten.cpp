// The strategy around the exact search: the part of the problem, the height, and the number of steps of each run.
//
// Exact searches have heavy-tailed run times: a run ends soon or hardly ever.  So each run has a failure limit, and the
// next one differs in its branching order.  Nogoods are kept from run to run, so that none repeats the failures of
// another.
#include "planning/placement/tighten.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "planning/placement/core.h"
#include "planning/placement/reduce.h"
#include "planning/placement/valley_search.h"

namespace layermem::planning::placement {
namespace {

// The weight of a residency in one run is lifetime^a * size^b; these {a, b} range from lifetime first to size first.
constexpr double kPowers[][2] = {{1, 1e-3}, {1, 1}, {1e-3, 1}, {2, 1}};
constexpr int64_t kPowerCount = std::size(kPowers);
constexpr double kNoise = 0.3;                 // standard deviation of log(weight) after the first cycle of powers
constexpr double kCoreShares[] = {0.98, 0.9};  // of the largest section load: what makes a core
constexpr int64_t kMaxFailures = 200;          // per run, times the Luby number of its cycle
constexpr Granules kSlackIgnored = 1000;       // slack bias, in heights: slack makes no difference
constexpr Granules kSlackWeighed = 128;        // slack bias is the height over this: slack decides

// The Luby sequence 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 ... for i = 1, 2, ...: restarts at these multiples are within a
// logarithmic factor of the best fixed restart interval (Luby, Sinclair, Zuckerman 1993).
int64_t luby(int64_t i) {
    int64_t k = 1;
    while (k - 1 < i) k *= 2;
    return i == k - 1 ? k / 2 : luby(i - k / 2 + 1);
}

// Slack counts in every other cycle; in between, the number of branches alone decides where to branch.
BranchingOrder make_order(const std::vector<Residency>& residencies, Granules height, int64_t round,
                          std::mt19937_64& random) {
    const double* power = kPowers[round % kPowerCount];
    std::vector<double> weight(residencies.size());
    for (size_t i = 0; i < residencies.size(); ++i) {
        const Residency& r = residencies[i];
        weight[i] = power[0] * std::log(r.end - r.begin) + power[1] * std::log(r.size);
        // A sum of four uniform numbers replaces a normal one: std::normal_distribution differs between libraries.
        for (int k = 0; k < 4 && round >= kPowerCount; ++k) {
            weight[i] += kNoise * std::sqrt(3.0) * (static_cast<double>(random() >> 11) * 0x1p-53 - 0.5);
        }
    }
    Order by_weight(residencies.size());
    std::iota(by_weight.begin(), by_weight.end(), 0);
    std::stable_sort(by_weight.begin(), by_weight.end(),
                     [&](ResidencyId a, ResidencyId b) { return weight[a] > weight[b]; });
    bool ignores_slack = round / kPowerCount % 2;
    BranchingOrder order{std::vector<int32_t>(residencies.size()),
                         ignores_slack ? kSlackIgnored * height : height / kSlackWeighed + 1};
    for (size_t k = 0; k < by_weight.size(); ++k) order.rank[by_weight[k]] = static_cast<int32_t>(k);
    return order;
}

// Searches for a solution below one height, run after run, with at most `max_steps`.  The seed is the height, so that
// the result depends on the problem alone.
SearchResult search_below(const Problem& problem, Granules height, int64_t max_steps, StepBudget& budget,
                          Solution& solution) {
    // One search object for all runs: it owns the nogoods, which hold for this height only.
    ValleySearch search(problem.residencies, ground_levels(problem), height);
    std::mt19937_64 random(static_cast<uint64_t>(height));
    int64_t until = budget.used() + max_steps;
    budget.spend(search.steps());
    for (int64_t round = 0; budget.used() < until && !budget.exhausted(); ++round) {
        BranchingOrder order = make_order(problem.residencies, height, round, random);
        SearchResult result = search.run(order, kMaxFailures * luby(round / kPowerCount + 1), budget);
        if (result == SearchResult::undecided) continue;
        if (result == SearchResult::found) {
            solution = {search.offsets(), solution_height(problem, search.offsets())};
        }
        return result;
    }
    return SearchResult::undecided;
}

// Returns whether the index of the search fits in memory and its construction in the steps.
bool is_searchable(const Problem& problem) {
    int64_t entries = 0;
    for (const Residency& r : problem.residencies) entries += r.end - r.begin;
    return entries <= kMaxSearchEntries;
}

// Searches cores of a problem without fixed residencies, the smallest first.  A solution of a core that reaches the
// target is one of the whole if the rest can be packed around it.
Solution search_cores(const Problem& problem, const Solution& start, StepBudget& budget) {
    for (double share : kCoreShares) {
        Core core = extract_core(problem, share);
        if (core.origin.size() > problem.residencies.size() / 10 * 9) break;  // hardly smaller than the whole
        Solution solution = pack_best(core.problem, budget).solution;
        if (solution.height > problem.target && is_searchable(core.problem)) {
            search_below(core.problem, problem.target, (budget.limit() - budget.used()) / 4, budget, solution);
        }
        // A core above the target says nothing about the whole: a larger core may still be solved.
        if (solution.height > problem.target) continue;
        Solution whole = pack_around_core(problem, core, solution, budget);
        if (whole.height <= problem.target) return whole;
    }
    return start;
}

// Searches the whole problem at falling heights: first at the target, with most of the steps; then by bisection between
// the best height and the highest one that failed, each with a third of the remaining steps.
Solution search_heights(const Problem& problem, const Solution& start, StepBudget& budget) {
    Solution best = start;
    Granules infeasible = problem.target - 1;  // proven: no solution is this low
    Granules failed = infeasible;              // infeasible, or not found with the steps it had
    while (best.height > infeasible + 1 && !budget.exhausted()) {
        bool is_first = failed == infeasible && infeasible < problem.target;
        Granules height = is_first ? problem.target : failed + (best.height - failed) / 2;
        int64_t rest = budget.limit() - budget.used();
        SearchResult result = search_below(problem, height, is_first ? rest / 3 * 2 : rest / 3, budget, best);
        if (result != SearchResult::found) failed = height;
        if (result == SearchResult::infeasible) infeasible = height;
        if (failed >= best.height - 1) failed = infeasible;  // the bisection has closed: once more from below
    }
    return best;
}

}  // namespace

Solution tighten(const Problem& problem, const Solution& start, StepBudget& budget) {
    Solution best = start;
    // Cores first: they are small, and usually decide.
    if (best.height > problem.target && problem.fixed.empty()) best = search_cores(problem, best, budget);
    if (best.height > problem.target && is_searchable(problem)) best = search_heights(problem, best, budget);
    return best;
}

}  // namespace layermem::planning::placement
