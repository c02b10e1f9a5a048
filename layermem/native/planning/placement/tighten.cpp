#include "planning/placement/tighten.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "planning/placement/core.h"
#include "planning/placement/reduce.h"
#include "planning/placement/valley_search.h"

namespace layermem::placing {
namespace {

// 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 ... for i = 1, 2, ...: within a log factor of the best fixed patience, whatever it is
// (Luby, Sinclair, Zuckerman 1993).
int64_t luby(int64_t i) {
    int64_t k = 1;
    while (k - 1 < i) k *= 2;
    return i == k - 1 ? k / 2 : luby(i - k / 2 + 1);
}

// How much a block matters to one run: life^a * size^b, from life first to size first.
constexpr double kPowers[][2] = {{1, 1e-3}, {1, 1}, {1e-3, 1}, {2, 1}};
constexpr int64_t kRules = std::size(kPowers);
constexpr double kNoise = 0.3;       // standard deviation of its logarithm, from the second turn of the rules on
constexpr double kShares[] = {0.98, 0.9};  // of the fullest section: what makes a core
constexpr int64_t kDeadEnds = 200;  // patience of a run, times Luby's number of the turn

// Slack counts in every other turn; in between, the number of branches alone says where to branch.
Taste taste_of(const std::vector<Block>& blocks, Units height, int64_t round, std::mt19937_64& random) {
    const double* power = kPowers[round % kRules];
    std::vector<double> weight(blocks.size());
    for (size_t i = 0; i < blocks.size(); ++i) {
        weight[i] = power[0] * std::log(blocks[i].last - blocks[i].first) + power[1] * std::log(blocks[i].size);
        // A sum of four uniform numbers stands in for a normal one, which differs between standard libraries.
        for (int k = 0; k < 4 && round >= kRules; ++k) {
            weight[i] += kNoise * std::sqrt(3.0) * (static_cast<double>(random() >> 11) * 0x1p-53 - 0.5);
        }
    }
    Order order(blocks.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return weight[a] > weight[b]; });
    Taste taste{std::vector<int32_t>(blocks.size()), round / kRules % 2 ? 1000 * height : height / 128 + 1};
    for (size_t k = 0; k < order.size(); ++k) taste.rank[order[k]] = static_cast<int32_t>(k);
    return taste;
}

// Searches for a layout below one height, run after run, with `allowed` steps.
Verdict search_below(const Problem& problem, Units height, int64_t allowed, Steps& steps, Layout& layout) {
    ValleySearch search(problem.blocks, ground_of(problem), height);
    std::mt19937_64 random(static_cast<uint64_t>(height));
    int64_t until = steps.used() + allowed;
    steps.take(search.looked_at());
    for (int64_t round = 0; steps.used() < until && !steps.over(); ++round) {
        Taste taste = taste_of(problem.blocks, height, round, random);
        Verdict verdict = search.run(taste, kDeadEnds * luby(round / kRules + 1), steps);
        if (verdict == Verdict::undecided) continue;
        if (verdict == Verdict::found) layout = {search.offsets(), height_of(problem, search.offsets())};
        return verdict;
    }
    return Verdict::undecided;
}

// Whether the memory and the steps for a search are in proportion.
bool searchable(const Problem& problem) {
    int64_t entries = 0;
    for (const Block& b : problem.blocks) entries += b.last - b.first;
    return entries <= kMostEntries;
}

// Cores of a problem without pins, the smallest first: a layout of one that reaches the target, and around which the
// rest finds room, is one of the whole.
Layout by_cores(const Problem& problem, const Layout& start, Steps& steps) {
    for (double share : kShares) {
        Core core = core_of(problem, share);
        if (core.origin.size() > problem.blocks.size() / 10 * 9) break;
        Layout layout = pack_best(core.problem, steps).layout;
        if (layout.height > problem.target && searchable(core.problem)) {
            search_below(core.problem, problem.target, (steps.limit() - steps.used()) / 4, steps, layout);
        }
        if (layout.height > problem.target) continue;
        Layout whole = pack_around(problem, core, layout, steps);
        if (whole.height <= problem.target) return whole;
    }
    return start;
}

// The whole problem at lower and lower heights.
Layout by_heights(const Problem& problem, const Layout& start, Steps& steps) {
    Layout best = start;
    Units impossible = problem.target - 1, tried = impossible;  // tried: impossible, or too hard with the steps it had
    while (best.height > impossible + 1 && !steps.over()) {
        // First the best there could be, with most of the steps; then by halves, each with a third of the rest.
        bool first = tried == impossible && impossible < problem.target;
        Units height = first ? problem.target : tried + (best.height - tried) / 2;
        int64_t rest = steps.limit() - steps.used();
        Verdict verdict = search_below(problem, height, first ? rest / 3 * 2 : rest / 3, steps, best);
        if (verdict != Verdict::found) tried = height;
        if (verdict == Verdict::impossible) impossible = height;
        if (tried >= best.height - 1) tried = impossible;  // as low as it gets this way: once more from below
    }
    return best;
}

}  // namespace

Layout tighten(const Problem& problem, const Layout& start, Steps& steps) {
    Layout best = start;
    if (best.height > problem.target && problem.pins.empty()) best = by_cores(problem, best, steps);
    if (best.height > problem.target && searchable(problem)) best = by_heights(problem, best, steps);
    return best;
}

}  // namespace layermem::placing
