#include "planning/liveness/segment_costs.h"

#include <algorithm>

namespace layermem::planning {
namespace {

constexpr int kNever = std::numeric_limits<int>::max();

}  // namespace

SegmentCosts::SegmentCosts(const StepGraph& graph, const LowerSets& sets, Model model)
    : graph_(graph), sets_(sets), model_(model), facts_(graph, sets) {
    in_segment_.assign(graph.nodes.size(), 0);
    want_.assign(graph.values.size(), kNever);
    lives_.assign(graph.item_count(), {});
}

Bytes SegmentCosts::peak_bound(int lower, int upper, Bytes enough) const {
    const auto &low = facts_.of(lower), &up = facts_.of(upper);
    if (model_ == Model::paper) return 2 * (up.bytes - low.bytes) + up.outside;
    Bytes most = up.carried - low.dying_bytes;
    const uint64_t* below = sets_.bits(lower);
    int looks = 2;
    for (const Witness& witness : up.witnesses) {
        if (most > enough || looks == 0) break;
        if (sets_.has(lower, witness.owner)) continue;
        --looks;
        Bytes sum = witness.beside - low.dying_bytes;
        most = std::max(most, sum + witness.node_bytes - low.read_bytes);
        for (int k = 0; k < sets_.words() && most <= enough; ++k)
            for (uint64_t word = witness.nodes[k] & ~below[k]; word; word &= word - 1)
                sum += facts_.read_bytes(k * 64 + lowest_bit(word));
        most = std::max(most, sum);
    }
    return most;
}

Ticks SegmentCosts::time_bound(int lower, int upper, Ticks enough) const {
    const auto &low = facts_.of(lower), &up = facts_.of(upper);
    if (model_ == Model::paper) return std::max<Ticks>(0, up.time - up.boundary_time - low.time);
    if (upper == sets_.size() - 1) return 0;
    if (up.must_time - low.read_time > enough) return up.must_time - low.read_time;
    Ticks sum = 0;
    const uint64_t* below = sets_.bits(lower);
    for (int k = 0; k < sets_.words() && sum <= enough; ++k)
        for (uint64_t word = up.must_replay[k] & ~below[k]; word; word &= word - 1)
            sum += graph_.nodes[k * 64 + lowest_bit(word)].replay_ticks;
    return sum;
}

// All that the segment keeps, less all that might be released: only a replay can prevent that.
Bytes SegmentCosts::kept_bound(int lower, int upper) const {
    if (upper == sets_.size() - 1) return 0;
    const auto &low = facts_.of(lower), &up = facts_.of(upper);
    if (model_ == Model::paper) return paper_pair(lower, upper).kept;
    Bytes sum = up.fixed_bytes - low.fixed_bytes;
    for (const auto& [node, bytes] : up.held)
        if (!sets_.has(lower, node)) sum += bytes;
    for (Value x : low.dying)
        if (releasable(x, upper)) sum -= facts_.bytes(x);
    return sum;
}

Segment SegmentCosts::evaluate(int lower, int upper) {
    return model_ == Model::paper ? paper_pair(lower, upper) : live_pair(lower, upper);
}

Segment SegmentCosts::paper_pair(int lower, int upper) const {
    const auto &low = facts_.of(lower), &up = facts_.of(upper);
    Segment out;
    out.recompute = up.time - low.time;
    for (Node v : up.boundary)
        if (!sets_.has(lower, v)) {
            out.recompute -= graph_.nodes[v].ticks;
            out.kept += graph_.node_bytes(v);
        }
    out.peak = 2 * (up.bytes - low.bytes) + up.outside;
    return out;
}

Segment SegmentCosts::live_pair(int lower, int upper) {
    collect(lower, upper);
    Segment out;
    if (upper == sets_.size() - 1) {
        sequence_.assign(nodes_.begin(), nodes_.end());
        for (Step s : steps_) sequence_.push_back(facts_.nodes() + s);
        find_lives(true);
        out.peak = sequence_peak(bytes_at_start(true));
        return out;
    }
    out.recompute = find_replays();
    const Bytes forward = forward_peak();
    out.eager = std::all_of(replays_.begin(), replays_.end(), [](const auto& r) { return r.first == 0; });
    set_sequence(out.eager);
    find_lives(false);
    out.kept = kept();
    const Bytes start = bytes_at_start(false);
    out.peak = std::max(forward, sequence_peak(start));
    if (!out.eager && out.peak > std::max(forward, eager_bound())) {
        set_sequence(true);
        find_lives(false);
        const Bytes early = std::max(forward, sequence_peak(start));
        out.eager = early <= out.peak;
        out.peak = std::min(out.peak, early);
    }
    return out;
}

void SegmentCosts::collect(int lower, int upper) {
    for (Node v : nodes_) in_segment_[v] = 0;
    lower_ = lower;
    upper_ = upper;
    nodes_.clear();
    steps_.clear();
    const uint64_t *low = sets_.bits(lower), *up = sets_.bits(upper);
    for (int k = 0; k < sets_.words(); ++k)
        for (uint64_t word = up[k] & ~low[k]; word; word &= word - 1) nodes_.push_back(k * 64 + lowest_bit(word));
    for (auto v = nodes_.rbegin(); v != nodes_.rend(); ++v) {
        in_segment_[*v] = 1;
        steps_.insert(steps_.end(), graph_.nodes[*v].steps.begin(), graph_.nodes[*v].steps.end());
    }
    if (!std::is_sorted(steps_.begin(), steps_.end())) std::sort(steps_.begin(), steps_.end());
}

// The first run of the segment: what is not kept dies with its last reader, and all its readers lie inside.
Bytes SegmentCosts::forward_peak() const {
    Bytes live = 0, peak = 0;
    for (Node v : nodes_) {
        const FlatOp& op = facts_.op(v);
        auto dies = [&](Value x) { return facts_.last_reader(x) == v && in_segment(x) && !facts_.held(upper_, x); };
        for (const int* x = op.write; x != op.write_end; ++x) live += facts_.bytes(*x);
        Bytes gain = 0;
        if (op.overlay != op.overlay_end) {
            OverlayGain granted(graph_);
            for (const Overlay* o = op.overlay; o != op.overlay_end; ++o)
                if (dies(o->second)) granted.add(o->first, o->second);
            gain = granted.bytes();
        }
        peak = std::max(peak, live + op.workspace - gain);
        for (const int* x = op.touch; x != op.touch_end; ++x)
            if (dies(*x)) live -= facts_.bytes(*x);
    }
    return peak;
}

// Which nodes must run again, and before which step the first need for each arises.  Returns their time.
Ticks SegmentCosts::find_replays() {
    for (Value x : wanted_) want_[x] = kNever;
    wanted_.clear();
    replays_.clear();
    auto want = [&](Value x, int position) {
        if (!in_segment(x) || facts_.held(upper_, x)) return;
        if (want_[x] == kNever) wanted_.push_back(x);
        want_[x] = std::min(want_[x], position);
    };
    const int end = static_cast<int>(steps_.size());
    for (int k = 0; k < end; ++k) {
        const FlatOp& op = facts_.op(facts_.nodes() + steps_[k]);
        for (const int* x = op.touch; x != op.middle; ++x) want(*x, k);
    }
    step_wanted_ = 0;
    for (Value x : wanted_) step_wanted_ += facts_.bytes(x);
    Ticks time = 0;
    for (auto v = nodes_.rbegin(); v != nodes_.rend(); ++v) {
        const FlatOp& op = facts_.op(*v);
        int first = kNever;
        for (const int* x = op.write; x != op.write_end; ++x) {
            if (facts_.stays(lower_, *x)) want(*x, end);  // a step of an earlier segment reads it
            first = std::min(first, want_[*x]);
        }
        if (first == kNever) continue;
        for (const int* x = op.touch; x != op.middle; ++x) want(*x, first);
        replays_.push_back({first, *v});
        time += graph_.nodes[*v].replay_ticks;
    }
    std::reverse(replays_.begin(), replays_.end());
    return time;
}

// Replays come by rising node, all at once or where the first need for each arises.
void SegmentCosts::set_sequence(bool eager) {
    const int end = static_cast<int>(steps_.size());
    sequence_.clear();
    if (eager) {
        for (const auto& replay : replays_) sequence_.push_back(replay.second);
        for (Step s : steps_) sequence_.push_back(facts_.nodes() + s);
        return;
    }
    first_at_.assign(end + 1, -1);
    next_at_.resize(replays_.size());
    for (int i = static_cast<int>(replays_.size()) - 1; i >= 0; --i) {
        next_at_[i] = first_at_[replays_[i].first];
        first_at_[replays_[i].first] = i;
    }
    for (int k = 0; k <= end; ++k) {
        for (int i = first_at_[k]; i >= 0; i = next_at_[i]) sequence_.push_back(replays_[i].second);
        if (k < end) sequence_.push_back(facts_.nodes() + steps_[k]);
    }
}

// From the end of sequence_ to its start: where each item is used last, and what is born and dies at each position.
// With the forward (the last segment) every value of the segment is written in the sequence; without it the kept ones
// are there from the start.
void SegmentCosts::find_lives(bool with_forward) {
    ++round_;
    change_.assign(sequence_.size(), {});
    for (int k = static_cast<int>(sequence_.size()) - 1; k >= 0; --k) {
        const FlatOp& op = facts_.op(sequence_[k]);
        for (const int* item = op.touch; item != op.touch_end; ++item) {
            Life& life = lives_[*item];
            if (life.round == round_) continue;
            life = {round_, k, kBefore};
            if (!facts_.stays(lower_, *item)) change_[k].dying += facts_.bytes(*item);
        }
        for (const int* item = op.write; item != op.write_end; ++item) {
            const bool there = facts_.held(upper_, *item) && !(with_forward && *item < facts_.values());
            if (there) continue;
            Life& life = lives_[*item];
            if (life.born != kBefore) change_[life.born].born -= facts_.bytes(*item);
            life.born = k;
            change_[k].born += facts_.bytes(*item);
        }
    }
}

Bytes SegmentCosts::bytes_at_start(bool with_forward) const {
    Bytes live = facts_.of(upper_).carried;
    for (Value x : facts_.of(lower_).dying)
        if (!used(x)) live -= facts_.bytes(x);
    if (with_forward) return live;
    for (Node v : nodes_)
        for (const int* x = facts_.op(v).write; x != facts_.op(v).write_end; ++x)
            if (facts_.held(upper_, *x) && (used(*x) || facts_.stays(lower_, *x))) live += facts_.bytes(*x);
    return live;
}

// With all replays before the first step, no less is resident between them: what steps read of the segment, or what is
// wanted below it, and what was carried in.
Bytes SegmentCosts::eager_bound() const {
    Bytes live = facts_.of(upper_).carried - facts_.of(lower_).dying_bytes + step_wanted_;
    for (Node v : nodes_)
        for (const int* x = facts_.op(v).write; x != facts_.op(v).write_end; ++x) {
            if (!facts_.held(upper_, *x)) continue;
            const auto& owners = graph_.values[*x].back_owners;
            const bool wanted = facts_.stays(lower_, *x) ||
                                std::any_of(owners.begin(), owners.end(), [&](Node w) { return in_segment_[w]; });
            if (wanted) live += facts_.bytes(*x);
        }
    return live;
}

// Bytes that the writes of this op take over from reads that end with it.
Bytes SegmentCosts::overlay_gain(const FlatOp& op, int position) const {
    OverlayGain gain(graph_);
    for (const Overlay* o = op.overlay; o != op.overlay_end; ++o) {
        const auto [written, read] = *o;
        if (lives_[written].born != position || lives_[read].last != position || facts_.stays(lower_, read)) continue;
        gain.add(written, read);
    }
    return gain.bytes();
}

// Highest bytes above M(U_{i-1}) while sequence_ runs, with `live` before it.
Bytes SegmentCosts::sequence_peak(Bytes live) const {
    Bytes peak = live;
    for (int k = 0; k < static_cast<int>(sequence_.size()); ++k) {
        const FlatOp& op = facts_.op(sequence_[k]);
        live += change_[k].born;
        const Bytes gain = op.overlay == op.overlay_end ? 0 : overlay_gain(op, k);
        peak = std::max(peak, live + op.workspace - gain);
        live -= change_[k].dying;
    }
    return peak;
}

// What the segment adds to U: its own kept values, less what was kept for it alone and is not wanted any more.
Bytes SegmentCosts::kept() const {
    Bytes sum = 0;
    for (Node v : nodes_)
        for (const int* x = facts_.op(v).write; x != facts_.op(v).write_end; ++x)
            if (facts_.held(upper_, *x)) sum += facts_.bytes(*x);
    for (Value x : facts_.of(lower_).dying)
        if (!used(x) && releasable(x, upper_)) sum -= facts_.bytes(x);
    return sum;
}

// Of the values that the lower set does not want itself: nothing above `upper` and no step wants it.
bool SegmentCosts::releasable(Value id, int upper) const {
    const ValueInfo& x = graph_.values[id];
    if (x.producer < 0 || x.kept || !x.back_owners.empty()) return false;
    return std::all_of(x.readers.begin(), x.readers.end(), [&](Node v) { return sets_.has(upper, v); });
}

}  // namespace layermem::planning
