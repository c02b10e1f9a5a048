#include "planning/placement/valley_search.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace layermem::placing {

void Hopeless::add(uint64_t state) {
    slots_[slot(state)] = state;
    if (++added_ < slots_.size() / 2 || slots_.size() == kMost) return;
    std::vector<uint64_t> before(slots_.size() * 4, 0);
    before.swap(slots_);
    for (uint64_t old : before) slots_[slot(old)] = old;
}

ValleySearch::ValleySearch(const std::vector<Block>& blocks, const std::vector<Units>& ground, Units height)
    : blocks_(blocks), twin_(blocks.size(), -1), skyline_(blocks, ground, height),
      count_(ground.size() + 1, 0), offset_(blocks.size(), 0) {
    std::map<std::tuple<Section, Section, Units>, int32_t> equal;
    for (size_t i = 0; i < blocks.size(); ++i) {
        int32_t& last = equal.try_emplace({blocks[i].first, blocks[i].last, blocks[i].size}, -1).first->second;
        twin_[i] = last;
        last = static_cast<int32_t>(i);
    }
    startable_ = skyline_.start();
}

Verdict ValleySearch::run(const Taste& taste, int64_t dead_ends, Steps& steps) {
    if (!startable_) return Verdict::impossible;
    skyline_.undo(0);
    decisions_.clear();
    candidates_.clear();
    ranges_.clear();
    dead_ends_ = 0;
    int64_t seen = looked_at();
    int32_t next = split(0, skyline_.sections(), -1, -1);
    while (next >= 0) {
        Range range = ranges_[next];
        bool open = decide(range, taste);
        int32_t d = open ? static_cast<int32_t>(decisions_.size()) - 1 : range.parent;
        while (d >= 0 && !advance(decisions_[d])) {
            hopeless_.add(decisions_[d].state);
            d = decisions_[d].parent;
        }
        if (d < 0) return Verdict::impossible;
        const Decision& made = decisions_[d];
        decisions_.resize(d + 1);
        candidates_.resize(made.candidates_end);
        ranges_.resize(made.ranges);
        next = split(made.first, made.last, d, made.next_range);
        int64_t now = looked_at();
        bool more = steps.take(now - seen + 1);
        seen = now;
        if (next >= 0 && (!more || dead_ends_ > dead_ends)) return Verdict::undecided;
    }
    return Verdict::found;
}

// Queues the parts of [first, last) that have remaining blocks before range `next`; returns the head of the queue.
int32_t ValleySearch::split(Section first, Section last, int32_t parent, int32_t next) {
    looked_at_ += last - first;
    for (Section left = first, s = first + 1; s <= last; ++s) {
        if (s < last && skyline_.crossed(s)) continue;
        if (skyline_.level(left) < skyline_.height()) {
            ranges_.push_back({left, s, parent, next});
            next = static_cast<int32_t>(ranges_.size()) - 1;
        }
        left = s;
    }
    return next;
}

// Opens a decision on some section of the range; false where the state is known to be hopeless.
bool ValleySearch::decide(const Range& range, const Taste& taste) {
    Decision d{};
    d.first = d.section = range.first;
    d.last = range.last;
    d.parent = range.parent;
    d.next_range = range.next;
    d.empty_upto = -1;
    d.mark = skyline_.mark();
    d.ranges = ranges_.size();
    d.tried = candidates_.size();
    d.state = skyline_.fingerprint(range.first, range.last);
    looked_at_ += range.last - range.first;
    if (hopeless_.holds(d.state)) return false;

    if (int32_t spanning = spanning_block(range); spanning >= 0) {
        candidates_.push_back(spanning);
    } else {
        Valley valley = choose(range, taste.indifferent);
        d.section = valley.section;
        d.empty_upto = empty_upto(valley, range);
        for (int32_t u : skyline_.alive(d.section)) {
            if (!skyline_.remains(u) || skyline_.least(u) > skyline_.level(d.section)) continue;
            if (twin_[u] < 0 || !skyline_.remains(twin_[u])) candidates_.push_back(u);
        }
        auto turn = [&](int32_t u) { return std::make_pair(-walls_evened(u, valley, range), taste.rank[u]); };
        std::sort(candidates_.begin() + static_cast<std::ptrdiff_t>(d.tried), candidates_.end(),
                  [&](int32_t a, int32_t b) { return turn(a) < turn(b); });
    }
    d.floor = skyline_.level(d.section);
    d.candidates_end = candidates_.size();
    decisions_.push_back(d);
    return true;
}

// Takes the next branch that does not fail at once; false when none is left.
bool ValleySearch::advance(Decision& d) {
    for (;; ++dead_ends_) {
        skyline_.undo(d.mark);
        if (d.tried < d.candidates_end) {
            int32_t u = candidates_[d.tried++];
            offset_[u] = d.floor;
            if (skyline_.put(u)) return true;
        } else if (d.empty_upto >= 0) {
            Units upto = d.empty_upto;
            d.empty_upto = -1;
            if (skyline_.leave_empty(d.section, upto)) return true;
        } else {
            return false;
        }
    }
}

// A block alive throughout a range with a flat floor, or -1.  It may as well lie at the bottom: what is below it and
// what is above it never meet, so below and above can be swapped.
int32_t ValleySearch::spanning_block(const Range& range) const {
    for (Section s = range.first + 1; s < range.last; ++s) {
        if (skyline_.level(s) != skyline_.level(range.first)) return -1;
    }
    for (int32_t u : skyline_.alive(range.first)) {
        ++looked_at_;
        if (skyline_.remains(u) && blocks_[u].last == range.last) return u;
    }
    return -1;
}

// Of all valleys of [first, last), the section with the least slack times branches; a forced one before all others.
ValleySearch::Valley ValleySearch::choose(const Range& range, Units indifferent) {
    const Section first = range.first, last = range.last;
    Valley best{first, last, -1};
    std::tuple<double, Units> least;
    for (Section a = first, z; a < last; a = z) {
        Units floor = skyline_.level(a);
        for (z = a + 1; z < last && skyline_.level(z) == floor;) ++z;
        bool low = (a == first || skyline_.level(a - 1) > floor) && (z == last || skyline_.level(z) > floor);
        if (!low || floor == skyline_.height()) continue;
        count_candidates(a, z);
        for (Section s = a; s < z; ++s) {
            Units slack = skyline_.slack(s);
            int32_t branches = count_[s] + (slack > 0);
            double cost = branches == 1 ? 0.0 : static_cast<double>(slack + indifferent) * branches;
            if (best.section >= 0 && std::tie(cost, floor) >= least) continue;
            best = {a, z, s};
            least = {cost, floor};
        }
    }
    looked_at_ += last - first;
    return best;
}

// Sides of the valley that block u, put on the floor against them, reaches the exact level of: no step is left there.
int ValleySearch::walls_evened(int32_t u, const Valley& v, const Range& range) const {
    const Block& b = blocks_[u];
    Units top = skyline_.level(v.first) + b.size;
    bool left = b.first == v.first && v.first > range.first && skyline_.level(v.first - 1) == top;
    bool right = b.last == v.last && v.last < range.last && skyline_.level(v.last) == top;
    return left + right;
}

// Remaining blocks that lie within the valley [first, last): they are the ones that can rest on its floor.
void ValleySearch::count_candidates(Section first, Section last) {
    std::fill(count_.begin() + first, count_.begin() + last + 1, 0);
    for (Section s = first; s < last; ++s) {
        for (int32_t u : skyline_.starting(s)) {
            ++looked_at_;
            if (!skyline_.remains(u) || blocks_[u].last > last) continue;
            ++count_[s];
            --count_[blocks_[u].last];
        }
    }
    for (Section s = first + 1; s < last; ++s) count_[s] += count_[s - 1];
}

// The least offset in the chosen section if nothing rests on the floor there: what lies lowest in it then rests on a
// side of the valley, or on a block within the valley that is not alive in the section.  -1: there is no such room.
Units ValleySearch::empty_upto(const Valley& v, const Range& range) const {
    Units slack = skyline_.slack(v.section), floor = skyline_.level(v.section);
    if (slack == 0) return -1;
    Units upto = skyline_.height();
    if (v.first > range.first) upto = std::min(upto, skyline_.level(v.first - 1));
    if (v.last < range.last) upto = std::min(upto, skyline_.level(v.last));
    for (Section s = v.first; s < v.last; ++s) {
        for (int32_t u : skyline_.starting(s)) {
            ++looked_at_;
            const Block& b = blocks_[u];
            if (!skyline_.remains(u) || b.last > v.last || (b.first <= v.section && v.section < b.last)) continue;
            upto = std::min(upto, floor + b.size);
        }
    }
    return upto - floor <= slack ? upto : -1;
}

}  // namespace layermem::placing
