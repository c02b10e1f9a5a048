#include "planning/recompute_search.h"

#include <algorithm>
#include <cmath>

namespace layermem {
namespace {

constexpr Bytes kUnreached = std::numeric_limits<Bytes>::max() / 4;
constexpr double kNoWay = 1e300;
constexpr size_t kUnlimited = std::numeric_limits<size_t>::max();

}  // namespace

Search::Search(const LowerSets& sets, Arcs& arcs, Bytes inputs, Family upto, Bytes budget, Ticks allowed, Watch& watch)
    : sets_(sets), inputs_(inputs), budget_(budget), allowed_(allowed), watch_(watch) {
    gather(arcs, upto, watch);
    hopeless_ = least_.back() >= kUnreached;
    if (!hopeless_) drop_dead_ends();
}

// Forward over the sets: the steps that some chain can take, and the least that it can have kept by then.
void Search::gather(Arcs& arcs, Family upto, Watch& watch) {
    steps_.resize(sets_.size());
    least_.assign(sets_.size(), kUnreached);
    leanest_from_.assign(sets_.size(), -1);
    least_[0] = inputs_;
    for (int from = 0; from < sets_.size() - 1; ++from) {
        if (least_[from] >= kUnreached) continue;
        arcs.each(from, upto, Box{budget_ - least_[from], allowed_}, watch, [&](const Arc& arc) {
            const Segment& segment = arc.segment;
            steps_[from].push_back({arc.to, segment.recompute, segment.kept, segment.peak});
            if (least_[from] + segment.kept >= least_[arc.to]) return;
            least_[arc.to] = least_[from] + segment.kept;
            leanest_from_[arc.to] = from;
        });
    }
}

// Steps that lead nowhere within the budget and the time go.
void Search::drop_dead_ends() {
    std::vector<Ticks> rest(sets_.size(), allowed_ + 1);
    rest.back() = 0;
    for (int from = sets_.size() - 2; from >= 0; --from) {
        auto& steps = steps_[from];
        steps.erase(std::remove_if(steps.begin(), steps.end(),
                                   [&](const Step& step) { return step.recompute + rest[step.to] > allowed_; }),
                    steps.end());
        for (const Step& step : steps) rest[from] = std::min(rest[from], step.recompute + rest[step.to]);
    }
}

// Fills prices_ and rests_ with a price of zero and a geometric row of others around the budget's own scale.
void Search::price() {
    double time = 1, bytes = 1;
    for (const auto& steps : steps_)
        for (const Step& step : steps) time = std::max(time, static_cast<double>(step.recompute));
    bytes = std::max<double>(bytes, static_cast<double>(budget_));
    prices_.assign(1, 0.0);
    for (int k = -4; k <= 12; ++k) prices_.push_back(time / bytes * std::pow(2.0, k));
    rests_.assign(prices_.size(), std::vector<double>(sets_.size(), kNoWay));
    const int last = sets_.size() - 1;
    for (size_t p = 0; p < prices_.size(); ++p) {
        const double price = prices_[p];
        auto& rest = rests_[p];
        rest[last] = 0;
        for (int from = last - 1; from >= 0; --from)
            for (const Step& step : steps_[from]) {
                const Bytes bytes_added = step.to == last ? step.peak : step.kept;
                rest[from] = std::min(rest[from], static_cast<double>(step.recompute) +
                                                      price * static_cast<double>(bytes_added) + rest[step.to]);
            }
    }
}

// No completion from here takes less (up to rounding, for which a little is taken off).
double Search::rest(int set, Bytes kept) const {
    if (set == sets_.size() - 1) return 0;
    double most = 0;
    for (size_t p = 0; p < prices_.size(); ++p)
        most = std::max(most, rests_[p][set] + prices_[p] * static_cast<double>(kept - budget_));
    return most - 1e-6;
}

// Leaves the labels that no other beats in both numbers, by growing key and falling bytes.
void Search::keep_front(std::vector<Label>& labels) const {
    std::sort(labels.begin(), labels.end(), [](const Label& a, const Label& b) {
        return a.key != b.key ? a.key < b.key : a.kept < b.kept;
    });
    size_t count = 0;
    for (const Label& label : labels)
        if (count == 0 || label.kept < labels[count - 1].kept) labels[count++] = label;
    labels.resize(count);
}

std::optional<std::vector<int>> Search::best(Objective objective) { return run(objective, kUnlimited); }

std::optional<std::vector<int>> Search::quick(size_t width) { return run(Objective::time, width); }

std::optional<std::vector<int>> Search::run(Objective objective, size_t width) {
    if (hopeless_) return std::nullopt;
    const bool least_time = objective == Objective::time;
    if (least_time && prices_.empty()) price();
    if (least_time && rest(0, inputs_) > static_cast<double>(allowed_)) return std::nullopt;
    std::vector<std::vector<Label>> fronts(sets_.size());
    std::vector<size_t> tidy_at(sets_.size(), 64);
    fronts[0].push_back({0, inputs_, -1, -1});
    for (int from = 0; from < sets_.size() - 1; ++from) {
        auto& front = fronts[from];
        if (front.empty()) continue;
        keep_front(front);
        if (least_time) {
            auto late = [&](const Label& l) { return static_cast<double>(l.key) + rest(from, l.kept) > allowed_; };
            front.erase(std::remove_if(front.begin(), front.end(), late), front.end());
        }
        if (front.size() > width) thin(from, front, width);
        front.shrink_to_fit();
        for (const Step& step : steps_[from]) {
            watch_.tick();
            auto& target = fronts[step.to];
            const Ticks added = least_time ? step.recompute : -step.recompute;
            const double latest = least_time ? static_cast<double>(allowed_) - rests_[0][step.to]
                                             : std::numeric_limits<double>::max();
            // By growing key bytes fall: the labels that fit are the last ones, those in time the first ones.
            const auto fits = std::partition_point(front.begin(), front.end(), [&](const Label& label) {
                return label.kept + step.peak > budget_;
            });
            for (auto label = fits; label != front.end(); ++label) {
                if (static_cast<double>(label->key + added) > latest) break;
                target.push_back(
                    {label->key + added, label->kept + step.kept, from, static_cast<int>(label - front.begin())});
            }
            if (target.size() < tidy_at[step.to]) continue;
            keep_front(target);
            tidy_at[step.to] = std::max<size_t>(64, 2 * target.size());
        }
    }
    keep_front(fronts.back());
    if (fronts.back().empty()) return std::nullopt;
    return trace(fronts);
}

// Keeps the `width` labels that promise most; their order stays.
void Search::thin(int set, std::vector<Label>& front, size_t width) const {
    std::vector<double> promise;
    for (const Label& label : front) promise.push_back(static_cast<double>(label.key) + rest(set, label.kept));
    std::vector<double> sorted = promise;
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<long>(width), sorted.end());
    const double limit = sorted[width];
    size_t count = 0;
    for (size_t i = 0; i < front.size(); ++i)
        if (promise[i] < limit || (promise[i] == limit && count < width)) front[count++] = front[i];
    front.resize(std::min(count, width));
}

std::vector<int> Search::trace(const std::vector<std::vector<Label>>& fronts) const {
    std::vector<int> chain;
    int set = sets_.size() - 1, position = 0;
    while (set > 0) {
        chain.push_back(set);
        const Label& label = fronts[set][position];
        set = label.set;
        position = label.parent;
    }
    std::reverse(chain.begin(), chain.end());
    return chain;
}

std::vector<int> Search::leanest() const {
    std::vector<int> chain;
    for (int set = sets_.size() - 1; set > 0; set = leanest_from_[set]) chain.push_back(set);
    std::reverse(chain.begin(), chain.end());
    return chain;
}

}  // namespace layermem
