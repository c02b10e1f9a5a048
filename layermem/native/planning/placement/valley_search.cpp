// Depth-first search with backjumping, nogoods and restarts (by the caller, with growing failure limits).
//
// The search tree alternates between ranges and decisions:
//
//      range [0, n) --decision--> split --> range [0, k)  --decision--> ...
//                                      \-> range [k, n)  --decision--> ...
//
// Ranges of one split are independent: no unplaced residency is alive in two of them.  They wait in a linked list, and
// the search is complete when the list is empty.
#include "planning/placement/valley_search.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace layermem::planning::placement {

void FailedStateCache::add(uint64_t state) {
    slots_[slot(state)] = state;
    // Half full counts as full: without probing, more states would replace each other.
    if (++added_ < slots_.size() / 2 || slots_.size() == kMaxSlots) return;
    std::vector<uint64_t> before(slots_.size() * 4, 0);
    before.swap(slots_);
    for (uint64_t old : before) slots_[slot(old)] = old;
}

ValleySearch::ValleySearch(const std::vector<Residency>& residencies, const std::vector<Granules>& ground,
                           Granules height)
    : residencies_(residencies),
      duplicate_of_(residencies.size(), -1),
      skyline_(residencies, ground, height),
      candidate_count_(ground.size() + 1, 0),
      offset_(residencies.size(), 0) {
    // Equal residencies form chains: each refers to the last one before it.
    std::map<std::tuple<Section, Section, Granules>, ResidencyId> last_equal;
    for (size_t i = 0; i < residencies.size(); ++i) {
        const Residency& r = residencies[i];
        ResidencyId& last = last_equal.try_emplace({r.begin, r.end, r.size}, -1).first->second;
        duplicate_of_[i] = last;
        last = static_cast<ResidencyId>(i);
    }
    is_root_feasible_ = skyline_.initialize();
}

// Searches depth first, with an explicit stack of decisions.  A range is taken from the queue, a decision is opened on
// it, its next branch that does not fail at once is taken, and the rest of the range is split and queued.  When a
// decision has no branch left, its state becomes a nogood and the search returns to its parent: the decision whose
// range it is part of, not the previous decision in time, which may concern another range (backjumping).
SearchResult ValleySearch::run(const BranchingOrder& order, int64_t max_failures, StepBudget& budget) {
    if (!is_root_feasible_) return SearchResult::infeasible;
    // Restores the state after initialize(); the nogoods of earlier runs stay valid.
    skyline_.undo(0);
    decisions_.clear();
    candidates_.clear();
    ranges_.clear();
    failures_ = 0;
    int64_t counted = steps();
    int32_t next = split(0, skyline_.sections(), -1, -1);
    while (next >= 0) {
        Range range = ranges_[next];
        bool is_open = open_decision(range, order);
        int32_t d = is_open ? static_cast<int32_t>(decisions_.size()) - 1 : range.parent;
        while (d >= 0 && !advance(decisions_[d])) {
            failed_states_.add(decisions_[d].state);
            d = decisions_[d].parent;
        }
        if (d < 0) return SearchResult::infeasible;
        // Decisions after d have been undone with their placements.
        const Decision& current = decisions_[d];
        decisions_.resize(d + 1);
        candidates_.resize(current.candidates_end);
        ranges_.resize(current.ranges);
        next = split(current.begin, current.end, d, current.next_range);
        int64_t now = steps();
        bool has_budget = budget.spend(now - counted + 1);
        counted = now;
        if (next >= 0 && (!has_budget || failures_ > max_failures)) return SearchResult::undecided;
    }
    return SearchResult::found;
}

// Queues the parts of [begin, end) that have unplaced residencies before range `next`; returns the head of the queue.
// A part ends at each border that no unplaced residency crosses.
int32_t ValleySearch::split(Section begin, Section end, int32_t parent, int32_t next) {
    steps_ += end - begin;
    for (Section left = begin, s = begin + 1; s <= end; ++s) {
        if (s < end && skyline_.is_crossed(s)) continue;
        // A level at the height means that nothing is unplaced there: no range.
        if (skyline_.level(left) < skyline_.height()) {
            ranges_.push_back({left, s, parent, next});
            next = static_cast<int32_t>(ranges_.size()) - 1;
        }
        left = s;
    }
    return next;
}

// Opens a decision on some section of the range; false if the state is a nogood.
bool ValleySearch::open_decision(const Range& range, const BranchingOrder& order) {
    Decision d{};
    d.begin = d.section = range.begin;
    d.end = range.end;
    d.parent = range.parent;
    d.next_range = range.next;
    d.empty_upto = -1;
    d.mark = skyline_.mark();
    d.ranges = ranges_.size();
    d.tried = candidates_.size();
    d.state = skyline_.fingerprint(range.begin, range.end);
    steps_ += range.end - range.begin;
    if (failed_states_.contains(d.state)) return false;

    if (ResidencyId spanning = find_spanning(range); spanning >= 0) {
        candidates_.push_back(spanning);
    } else {
        Valley valley = choose_valley(range, order.slack_bias);
        d.section = valley.section;
        d.empty_upto = find_empty_upto(valley, range);
        for (ResidencyId r : skyline_.alive(d.section)) {
            if (!skyline_.is_unplaced(r) || skyline_.least_offset(r) > skyline_.level(d.section)) continue;
            // Among equal residencies, only the unplaced one with the lowest id is a candidate.
            if (duplicate_of_[r] < 0 || !skyline_.is_unplaced(duplicate_of_[r])) candidates_.push_back(r);
        }
        auto key = [&](ResidencyId r) { return std::make_pair(-count_flush_walls(r, valley, range), order.rank[r]); };
        // Candidates that leave no notch at a wall first, then by the order of this run.
        std::sort(candidates_.begin() + static_cast<std::ptrdiff_t>(d.tried), candidates_.end(),
                  [&](ResidencyId a, ResidencyId b) { return key(a) < key(b); });
    }
    d.floor = skyline_.level(d.section);
    d.candidates_end = candidates_.size();
    decisions_.push_back(d);
    return true;
}

// Takes the next branch that does not fail at once: each candidate on the floor, then the empty floor.  False when none
// is left.
bool ValleySearch::advance(Decision& d) {
    for (;; ++failures_) {
        skyline_.undo(d.mark);
        if (d.tried < d.candidates_end) {
            ResidencyId r = candidates_[d.tried++];
            // The offset stays where the branch fails: it is overwritten before it is read.
            offset_[r] = d.floor;
            if (skyline_.place(r)) return true;
        } else if (d.empty_upto >= 0) {
            Granules upto = d.empty_upto;
            d.empty_upto = -1;
            if (skyline_.leave_empty(d.section, upto)) return true;
        } else {
            return false;
        }
    }
}

// Returns a residency alive throughout a range with a level floor, or -1.  It can lie at the bottom without loss:
// residencies below and above it never overlap in address, so both parts can be swapped.
ResidencyId ValleySearch::find_spanning(const Range& range) const {
    for (Section s = range.begin + 1; s < range.end; ++s) {
        if (skyline_.level(s) != skyline_.level(range.begin)) return -1;
    }
    for (ResidencyId r : skyline_.alive(range.begin)) {
        ++steps_;
        if (skyline_.is_unplaced(r) && residencies_[r].end == range.end) return r;
    }
    return -1;
}

// Chooses, of all valleys of the range, the section with the least (slack + bias) * branches; among equal ones the
// lowest floor.  A section with a single branch is forced: it comes before all others.
ValleySearch::Valley ValleySearch::choose_valley(const Range& range, Granules slack_bias) {
    const Section begin = range.begin;
    const Section end = range.end;
    Valley best{begin, end, -1};
    std::tuple<double, Granules> least;
    for (Section a = begin, z; a < end; a = z) {
        Granules floor = skyline_.level(a);
        // [a, z) is the run of sections at one level that begins at a.
        for (z = a + 1; z < end && skyline_.level(z) == floor;) ++z;
        bool is_valley = (a == begin || skyline_.level(a - 1) > floor) && (z == end || skyline_.level(z) > floor);
        if (!is_valley || floor == skyline_.height()) continue;
        count_candidates(a, z);
        for (Section s = a; s < z; ++s) {
            Granules slack = skyline_.slack(s);
            int32_t branches = candidate_count_[s] + (slack > 0);  // the empty floor needs slack
            double cost = branches == 1 ? 0.0 : static_cast<double>(slack + slack_bias) * branches;
            if (best.section >= 0 && std::tie(cost, floor) >= least) continue;
            best = {a, z, s};
            least = {cost, floor};
        }
    }
    steps_ += end - begin;
    return best;
}

// Returns how many walls of the valley end level with r, if r lies on the floor next to them: no notch is left there.
int ValleySearch::count_flush_walls(ResidencyId id, const Valley& v, const Range& range) const {
    const Residency& r = residencies_[id];
    Granules top = skyline_.level(v.begin) + r.size;
    bool left = r.begin == v.begin && v.begin > range.begin && skyline_.level(v.begin - 1) == top;
    bool right = r.end == v.end && v.end < range.end && skyline_.level(v.end) == top;
    return left + right;
}

// Counts, per section of the valley [begin, end), the unplaced residencies that lie within the valley: only they can
// rest on its floor.  Differences at their ends come first, then the running sum.
void ValleySearch::count_candidates(Section begin, Section end) {
    std::fill(candidate_count_.begin() + begin, candidate_count_.begin() + end + 1, 0);
    for (Section s = begin; s < end; ++s) {
        for (ResidencyId r : skyline_.starting(s)) {
            ++steps_;
            if (!skyline_.is_unplaced(r) || residencies_[r].end > end) continue;
            ++candidate_count_[s];
            --candidate_count_[residencies_[r].end];
        }
    }
    for (Section s = begin + 1; s < end; ++s) candidate_count_[s] += candidate_count_[s - 1];
}

// Returns the least offset in the chosen section if nothing rests on the floor there: the lowest residency in it then
// rests on a wall of the valley, or on a residency within the valley that is not alive in the section.  Returns -1 if
// the section has too little slack for it.
Granules ValleySearch::find_empty_upto(const Valley& v, const Range& range) const {
    Granules slack = skyline_.slack(v.section);
    Granules floor = skyline_.level(v.section);
    // An empty floor costs slack: without any, something must rest on it.
    if (slack == 0) return -1;
    Granules upto = skyline_.height();
    if (v.begin > range.begin) upto = std::min(upto, skyline_.level(v.begin - 1));
    if (v.end < range.end) upto = std::min(upto, skyline_.level(v.end));
    for (Section s = v.begin; s < v.end; ++s) {
        for (ResidencyId id : skyline_.starting(s)) {
            ++steps_;
            const Residency& r = residencies_[id];
            if (!skyline_.is_unplaced(id) || r.end > v.end || (r.begin <= v.section && v.section < r.end)) continue;
            upto = std::min(upto, floor + r.size);
        }
    }
    return upto - floor <= slack ? upto : -1;
}

}  // namespace layermem::planning::placement
