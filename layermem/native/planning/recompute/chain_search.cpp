#include "planning/recompute/chain_search.h"

#include <algorithm>
#include <limits>

namespace layermem::planning {
namespace {

constexpr size_t kUnlimited = std::numeric_limits<size_t>::max();

}  // namespace

Search::Search(const LowerSets& sets, Arcs& arcs, Bytes inputs, const Question& question, Ticks allowed, Watch& watch)
    : sets_(sets),
      arcs_(arcs),
      inputs_(inputs),
      question_(question),
      last_(sets.size() - 1),
      allowed_(allowed),
      watch_(watch),
      reach_(sets, arcs, inputs, question.upto, question.budget, allowed, watch),
      prices_(sets.size(), question.budget, allowed),
      hopeless_(reach_.hopeless()) {
    if (hopeless_) return;
    if (by_time()) price_arcs();
    if (hopeless_) return;
    gather_survivors();
}

// ---- arcs that matter ---------------------------------------------------------------------------------------------

template <class Visit>
void Search::each_arc(int from, Visit visit) {
    if (!reach_.at(from)) return;
    watch_.tick();
    arcs_.each(from, question_.upto, Box{question_.budget - reach_.least(from), allowed_}, watch_, visit);
}

// First at prices far apart, then at a row around the best of them.
void Search::price_arcs() {
    for (int round = 0; round < 2; ++round) {
        prices_.begin_at_end();
        for (int from = last_ - 1; from >= 0; --from)
            each_arc(from, [&](const Arc& arc) {
                prices_.add_before(from, arc.to, arc.recompute, charged(arc.to, arc.kept, arc.peak));
            });
        if (prices_.whole(inputs_) > static_cast<double>(allowed_)) {
            hopeless_ = true;
            return;
        }
        if (round == 0) prices_.set_row(prices_.best(inputs_));
    }
    prices_.begin_at_start(inputs_);
    for (int from = 0; from < last_; ++from)
        each_arc(from, [&](const Arc& arc) {
            prices_.add_after(from, arc.to, arc.recompute, charged(arc.to, arc.kept, arc.peak));
        });
}

bool Search::survives(int from, int to, const Box& cost, Bytes kept) const {
    if (!by_time()) return true;
    const double allowed = static_cast<double>(allowed_), time = static_cast<double>(cost.time);
    if (prices_.through(from, to, cost.time, charged(to, kept, cost.peak)) > allowed) return false;
    return prices_.before(from, question_.budget - cost.peak) + time + prices_.rest(to, reach_.least(to)) <= allowed;
}

void Search::gather_survivors() {
    steps_.resize(sets_.size());
    for (int from = 0; from < last_; ++from)
        each_arc(from, [&](Arc& arc) {
            if (survives(from, arc.to, {arc.peak, arc.recompute}, arc.kept)) steps_[arc.to].push_back({from, &arc});
        });
}

// Prices the steps anew, by what is known by now, and lets those go that are of no use any more.
void Search::sift() {
    if (!by_time()) return;
    prices_.begin_at_end();
    for (int to = last_; to > 0; --to)
        for (const auto& [from, arc] : steps_[to])
            prices_.add_before(from, to, arc->recompute, charged(to, arc->kept, arc->peak));
    prices_.begin_at_start(inputs_);
    for (int to = 1; to <= last_; ++to)
        for (const auto& [from, arc] : steps_[to])
            prices_.add_after(from, to, arc->recompute, charged(to, arc->kept, arc->peak));
    hopeless_ = prices_.whole(inputs_) > static_cast<double>(allowed_);
    for (int to = 1; to <= last_; ++to) {
        auto useless = [&](const Step& s) {
            return !survives(s.from, to, {s.arc->peak, s.arc->recompute}, s.arc->kept);
        };
        steps_[to].erase(std::remove_if(steps_[to].begin(), steps_[to].end(), useless), steps_[to].end());
    }
}

void Search::allow(Ticks time) {
    if (time >= allowed_) return;
    allowed_ = time;
    if (!hopeless_) sift();
}

// ---- states -------------------------------------------------------------------------------------------------------

std::optional<std::vector<int>> Search::best() { return run(kUnlimited); }

std::optional<std::vector<int>> Search::quick(size_t width) { return run(width); }

std::optional<std::vector<int>> Search::run(size_t width) {
    if (hopeless_) return std::nullopt;
    cheapest_.assign(static_cast<size_t>(allowed_) + 1, kUnreached);
    std::vector<Front> fronts(sets_.size());
    fronts[0].push_back({0, inputs_});
    for (int to = 1; to <= last_; ++to) {
        arrive(to, fronts);
        leave_late_ones(to, fronts[to]);
        if (fronts[to].size() > width) thin(to, fronts[to], width);
        fronts[to].shrink_to_fit();
    }
    if (fronts.back().empty()) return std::nullopt;
    return trace(fronts);
}

// The front of a set, from those of all sets that lead to it.
void Search::arrive(int to, std::vector<Front>& fronts) {
    const Ticks base = by_time() ? 0 : -allowed_;  // the lowest key
    const double latest = by_time() ? static_cast<double>(allowed_) - prices_.rest(to, reach_.least(to)) : 0;
    touched_.clear();
    for (const Step& step : steps_[to]) {
        watch_.tick();
        const Arc& arc = *step.arc;
        const Front& front = fronts[step.from];
        // By growing key bytes fall: the labels that fit are the last ones, those in time the first ones.
        auto first = [&] {
            return std::partition_point(front.begin(), front.end(), [&](const Label& l) {
                return l.kept + arc.peak > question_.budget;
            });
        };
        auto late = [&](const Label& l) { return static_cast<double>(l.key + step.added(by_time())) > latest; };
        auto label = first();
        if (label == front.end() || late(*label)) continue;
        if (!arc.settled) {
            arcs_.settle(step.from, *step.arc, watch_);
            label = first();
        }
        for (; label != front.end() && !late(*label); ++label) {
            const Ticks at = label->key + step.added(by_time()) - base;
            Bytes& kept = cheapest_[static_cast<size_t>(at)];
            if (kept >= kUnreached) touched_.push_back(static_cast<int32_t>(at));
            kept = std::min(kept, label->kept + arc.kept);
        }
    }
    std::sort(touched_.begin(), touched_.end());
    Bytes least = kUnreached;
    for (int32_t at : touched_) {
        if (cheapest_[at] < least) {
            least = cheapest_[at];
            fronts[to].push_back({at + base, least});
        }
        cheapest_[at] = kUnreached;
    }
}

void Search::leave_late_ones(int set, Front& front) const {
    if (!by_time()) return;
    auto late = [&](const Label& l) { return static_cast<double>(l.key) + prices_.rest(set, l.kept) > allowed_; };
    front.erase(std::remove_if(front.begin(), front.end(), late), front.end());
}

// Keeps the `width` labels that promise most; their order stays.
void Search::thin(int set, Front& front, size_t width) const {
    std::vector<double> promise;
    for (const Label& label : front) promise.push_back(static_cast<double>(label.key) + prices_.rest(set, label.kept));
    std::vector<double> sorted = promise;
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<long>(width), sorted.end());
    const double limit = sorted[width];
    size_t count = 0;
    for (size_t i = 0; i < front.size(); ++i)
        if (promise[i] < limit || (promise[i] == limit && count < width)) front[count++] = front[i];
    front.resize(std::min(count, width));
}

// Backwards from the best label of V: each came by a step from a label that is still in its front.
std::vector<int> Search::trace(const std::vector<Front>& fronts) const {
    std::vector<int> chain;
    Label label = fronts[last_].front();
    for (int set = last_; set > 0;) {
        chain.push_back(set);
        for (const Step& step : steps_[set]) {
            const Label wanted{label.key - step.added(by_time()), label.kept - step.arc->kept};
            const Front& front = fronts[step.from];
            const auto found = std::lower_bound(front.begin(), front.end(), wanted.key,
                                                [](const Label& l, Ticks key) { return l.key < key; });
            const bool came = step.arc->settled && found != front.end() && found->key == wanted.key &&
                              found->kept == wanted.kept && wanted.kept + step.arc->peak <= question_.budget;
            if (!came) continue;
            set = step.from;
            label = wanted;
            break;
        }
    }
    std::reverse(chain.begin(), chain.end());
    return chain;
}

}  // namespace layermem::planning
