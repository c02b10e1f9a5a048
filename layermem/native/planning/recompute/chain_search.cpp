// The search in four phases, each cheaper than the one it prepares:
//
//      1  reachability    the least M(U) per set; if V is out of reach, no chain fits
//      2  bounds          shortest paths at many multipliers, over edges that fit on top of that least M(U)
//      3  edges           those that a chain within the time may use, by these bounds
//      4  labels          set by set, all non-dominated (time, kept) pairs; the best label of V is the answer
//
// Edge costs are lower bounds until phase 4 needs them, so an edge or set that a phase rules out stays ruled out.
#include "planning/recompute/chain_search.h"

#include <algorithm>
#include <limits>

namespace layermem::planning::recompute {
namespace {

constexpr size_t kUnlimitedWidth = std::numeric_limits<size_t>::max();
constexpr Quanta kProvenMargin = 25;  // a limit is above what is proven by this part of it,
constexpr Quanta kUnprovenStep = 12;  // or above a limit that was too low by this one

}  // namespace

ChainSearch::ChainSearch(const LowerSets& sets, SegmentGraph& graph, Bytes inputs, const ChainQuery& query,
                         Quanta max_recompute, Deadline& deadline)
    : sets_(sets),
      graph_(graph),
      inputs_(inputs),
      query_(query),
      last_(sets.size() - 1),
      max_recompute_(max_recompute),
      deadline_(deadline),
      reach_(sets, graph, inputs, query.upto, query.budget_bytes, max_recompute, deadline),
      bounds_(sets.size(), query.budget_bytes, max_recompute),
      is_infeasible_(reach_.is_infeasible()) {
    if (is_infeasible_) return;
    if (by_time()) compute_bounds();
    if (is_infeasible_) return;
    collect_edges();
}

// ---- bounds and useful edges --------------------------------------------------------------------------------------

// Visits edges from a reachable set that fit in addition to the least bytes it can keep.
template <class Visit>
void ChainSearch::for_each_edge(SetIndex from, Visit visit) {
    if (!reach_.is_reachable(from)) return;
    deadline_.check();
    // Every chain keeps at least min_kept(from) there, so the peak of a usable edge is at most the rest of the budget.
    const CostBox box{query_.budget_bytes - reach_.min_kept(from), max_recompute_};
    graph_.for_each_edge(from, query_.upto, box, deadline_, visit);
}

// Computes suffixes twice: at multipliers far apart, then around the best of them; then prefixes, at the latter.
void ChainSearch::compute_bounds() {
    // Sets are sorted by size and edges lead to larger ones, so falling `from` is a topological order.
    for (int round = 0; round < 2; ++round) {
        bounds_.begin_suffixes();
        for (SetIndex from = last_ - 1; from >= 0; --from)
            for_each_edge(from, [&](const SegmentEdge& edge) {
                bounds_.relax_suffix(from, edge.to, edge.recompute, charged_bytes(edge.to, edge.kept, edge.peak));
            });
        if (bounds_.chain_bound(inputs_) > static_cast<Bound>(max_recompute_)) {
            is_infeasible_ = true;
            return;
        }
        if (round == 0) bounds_.refine_around(bounds_.best_multiplier(inputs_));
    }
    bounds_.begin_prefixes(inputs_);
    for (SetIndex from = 0; from < last_; ++from)
        for_each_edge(from, [&](const SegmentEdge& edge) {
            bounds_.relax_prefix(from, edge.to, edge.recompute, charged_bytes(edge.to, edge.kept, edge.peak));
        });
}

// Returns a lower bound of chains that use the edge: the bound of the whole chain, or the sum of the bounds of its two
// parts, which may have different multipliers.
Bound ChainSearch::bound_through(SetIndex from, const SegmentEdge& edge) const {
    if (!by_time()) return 0;
    const Bound whole = bounds_.edge_bound(from, edge.to, edge.recompute, charged_bytes(edge.to, edge.kept, edge.peak));
    const Bound before = bounds_.prefix_bound(from, query_.budget_bytes - edge.peak);
    const Bound after = bounds_.suffix_bound(edge.to, reach_.min_kept(edge.to));
    return std::max(whole, before + static_cast<Bound>(edge.recompute) + after);
}

void ChainSearch::collect_edges() {
    useful_.resize(sets_.size());
    for (SetIndex from = 0; from < last_; ++from)
        for_each_edge(from, [&](SegmentEdge& edge) {
            const Bound bound = bound_through(from, edge);
            if (bound <= static_cast<Bound>(max_recompute_)) useful_[edge.to].push_back({from, &edge, bound});
        });
}

// Computes the bounds again from the remaining edges, many of them exact by now, and drops edges that became useless.
void ChainSearch::tighten_bounds() {
    if (!by_time()) return;
    bounds_.begin_suffixes();
    for (SetIndex to = last_; to > 0; --to)
        for (const auto& [from, edge, _] : useful_[to])
            bounds_.relax_suffix(from, to, edge->recompute, charged_bytes(to, edge->kept, edge->peak));
    bounds_.begin_prefixes(inputs_);
    for (SetIndex to = 1; to <= last_; ++to)
        for (const auto& [from, edge, _] : useful_[to])
            bounds_.relax_prefix(from, to, edge->recompute, charged_bytes(to, edge->kept, edge->peak));
    is_infeasible_ = bounds_.chain_bound(inputs_) > static_cast<Bound>(max_recompute_);
    for (SetIndex to = 1; to <= last_; ++to) {
        auto is_useless = [&](IncomingEdge& in) {
            in.bound = bound_through(in.from, *in.edge);
            return in.bound > static_cast<Bound>(max_recompute_);
        };
        useful_[to].erase(std::remove_if(useful_[to].begin(), useful_[to].end(), is_useless), useful_[to].end());
    }
}

void ChainSearch::lower_max_recompute(Quanta time) {
    if (time >= max_recompute_) return;
    max_recompute_ = time;
    if (!is_infeasible_) tighten_bounds();
}

// ---- labels -------------------------------------------------------------------------------------------------------

std::optional<Chain> ChainSearch::find_best() {
    if (!by_time()) return run(kUnlimitedWidth);
    const Quanta most = max_recompute_;
    for (Quanta limit = 0; !is_infeasible_;) {
        const auto proven = static_cast<Quanta>(lower_bound());
        limit = std::min(std::max(proven + proven / kProvenMargin, limit + limit / kUnprovenStep) + 1, most);
        max_recompute_ = limit;
        auto chain = run(kUnlimitedWidth);
        max_recompute_ = most;
        if (chain || limit >= most) return chain;
        tighten_bounds();  // with the edges that are exact by now
    }
    return std::nullopt;
}

std::optional<Chain> ChainSearch::beam_search(size_t width) { return run(width); }

// Sets incoming_ to the edges that a chain within the limit may use.
void ChainSearch::select_edges() {
    incoming_.assign(sets_.size(), {});
    for (SetIndex to = 1; to <= last_; ++to)
        for (const IncomingEdge& in : useful_[to])
            if (in.bound <= static_cast<Bound>(max_recompute_)) incoming_[to].push_back(in);
}

std::optional<Chain> ChainSearch::run(size_t width) {
    if (is_infeasible_) return std::nullopt;
    select_edges();
    least_kept_.assign(static_cast<size_t>(max_recompute_) + 1, kUnreached);
    least_up_to_.assign(least_kept_.size(), kUnreached);
    // The first label: nothing has run, and the inputs are resident.
    std::vector<ParetoFront> fronts(sets_.size());
    fronts[0].push_back({0, inputs_});
    // A set's front is final when all smaller sets have been extended.
    for (SetIndex to = 1; to <= last_; ++to) {
        extend_into(to, fronts);
        drop_late_labels(to, fronts[to]);
        if (fronts[to].size() > width) prune_to_width(to, fronts[to], width);
        fronts[to].shrink_to_fit();  // the fronts of all sets stay for trace_back()
    }
    if (fronts.back().empty()) return std::nullopt;
    return trace_back(fronts);
}

// Computes the front of a set from those of all sets with an edge to it.  Times are whole quanta, so a table by key
// replaces a merge: least_kept_[key] is the least kept of all labels with that key, read off by rising key.
void ChainSearch::extend_into(SetIndex to, std::vector<ParetoFront>& fronts) {
    const Quanta base = by_time() ? 0 : -max_recompute_;  // the lowest key
    const Bound latest =
        by_time() ? static_cast<Bound>(max_recompute_) - bounds_.suffix_bound(to, reach_.min_kept(to)) : 0;
    touched_.clear();
    for (const IncomingEdge& in : incoming_[to]) {
        deadline_.check();
        const SegmentEdge& edge = *in.edge;
        const ParetoFront& front = fronts[in.from];
        // Bytes fall with rising key: the labels that fit are the last ones, those in time the first ones.
        auto find_first_fit = [&] {
            return std::partition_point(front.begin(), front.end(),
                                        [&](const Label& l) { return l.kept + edge.peak > query_.budget_bytes; });
        };
        auto is_late = [&](const Label& l) { return static_cast<Bound>(l.key + in.key_step(by_time())) > latest; };
        auto label = find_first_fit();
        auto key_after = [&](const Label& l) { return static_cast<size_t>(l.key + in.key_step(by_time()) - base); };
        // The bounds of an edge are lower bounds of its time, so they prove nothing if the most time is wanted.
        auto is_dominated = [&](const Label& l) {
            return by_time() && least_up_to_.min(key_after(l)) <= l.kept + edge.kept;
        };
        // Uses the bounds of an edge first: they rule out most labels without exact costs.
        if (!edge.is_exact) {
            auto extends_label = [&] {
                label = find_first_fit();
                while (label != front.end() && !is_late(*label) && is_dominated(*label)) ++label;
                return label != front.end() && !is_late(*label);
            };
            if (!graph_.make_exact(in.from, *in.edge, deadline_, extends_label)) continue;
        }
        for (; label != front.end() && !is_late(*label); ++label) {
            const size_t key = key_after(*label);
            const Bytes kept = label->kept + edge.kept;
            if (kept >= least_kept_[key]) continue;
            if (least_kept_[key] >= kUnreached) touched_.push_back(static_cast<int32_t>(key));
            least_kept_[key] = kept;
            least_up_to_.lower(key, kept);
        }
    }
    // By rising key, a label enters the front if it keeps less than all before it; the table is cleared on the way.
    std::sort(touched_.begin(), touched_.end());
    Bytes least = kUnreached;
    for (int32_t key : touched_) {
        if (least_kept_[key] < least) {
            least = least_kept_[key];
            fronts[to].push_back({key + base, least});
        }
        least_kept_[key] = kUnreached;
        least_up_to_.clear(static_cast<size_t>(key));
    }
}

void ChainSearch::drop_late_labels(SetIndex set, ParetoFront& front) const {
    if (!by_time()) return;
    auto is_late = [&](const Label& l) {
        return static_cast<Bound>(l.key) + bounds_.suffix_bound(set, l.kept) > max_recompute_;
    };
    front.erase(std::remove_if(front.begin(), front.end(), is_late), front.end());
}

// Keeps the `width` labels with the lowest bound of the whole chain; their order stays.
void ChainSearch::prune_to_width(SetIndex set, ParetoFront& front, size_t width) const {
    std::vector<Bound> bounds;
    for (const Label& label : front) {
        bounds.push_back(static_cast<Bound>(label.key) + bounds_.suffix_bound(set, label.kept));
    }
    // The width-th smallest bound is the limit; ties go to the labels with the lowest keys.
    std::vector<Bound> sorted = bounds;
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<long>(width), sorted.end());
    const Bound limit = sorted[width];
    size_t count = 0;
    for (size_t i = 0; i < front.size(); ++i)
        if (bounds[i] < limit || (bounds[i] == limit && count < width)) front[count++] = front[i];
    front.resize(std::min(count, width));
}

// Goes backwards from the best label of V.  Labels store no predecessor, so that fronts stay small: for each label,
// some edge leads back to a label that is still in its front, with exactly the difference in key and bytes.
Chain ChainSearch::trace_back(const std::vector<ParetoFront>& fronts) const {
    Chain chain;
    Label label = fronts[last_].front();
    for (SetIndex set = last_; set > 0;) {
        chain.push_back(set);
        for (const IncomingEdge& in : incoming_[set]) {
            const Label origin{label.key - in.key_step(by_time()), label.kept - in.edge->kept};
            const ParetoFront& front = fronts[in.from];
            const auto match = std::lower_bound(front.begin(), front.end(), origin.key,
                                                [](const Label& l, Quanta key) { return l.key < key; });
            auto is_origin = [&] {
                return match != front.end() && match->key == origin.key && match->kept == origin.kept &&
                       origin.kept + in.edge->peak <= query_.budget_bytes;
            };
            // Several edges may match, with the same time and bytes: the first one is used, exact or not, so that
            // answers do not depend on earlier searches.
            if (!graph_.make_exact(in.from, *in.edge, deadline_, is_origin)) continue;
            set = in.from;
            label = origin;
            break;
        }
    }
    std::reverse(chain.begin(), chain.end());
    return chain;
}

}  // namespace layermem::planning::recompute
