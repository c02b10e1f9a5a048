#include "planning/liveness.h"

#include <algorithm>

namespace layermem {
namespace {

constexpr int kNever = std::numeric_limits<int>::max();
constexpr int kAbsent = -2, kBefore = -1;  // not resident yet; resident from before the sequence

}  // namespace

SegmentCosts::SegmentCosts(const StepGraph& graph, const LowerSets& sets, Model model)
    : graph_(graph), sets_(sets), model_(model), facts_(graph, sets) {
    in_segment_.assign(graph.nodes.size(), 0);
    want_.assign(graph.values.size(), kNever);
    last_use_.assign(graph.item_count(), -1);
    born_.assign(graph.item_count(), kAbsent);
}

Bytes SegmentCosts::peak_bound(int lower, int upper, Bytes enough) const {
    const auto &low = facts_.of(lower), &up = facts_.of(upper);
    if (model_ == Model::paper) return 2 * (up.bytes - low.bytes) + up.outside;
    const Bytes at_start = up.carried - low.dying_bytes;
    if (at_start > enough || up.witness < 0 || sets_.has(lower, up.witness)) return at_start;
    Bytes sum = up.carried_past - low.dying_bytes;
    if (sum + up.at_witness_bytes - low.read_bytes > enough) return sum + up.at_witness_bytes - low.read_bytes;
    const uint64_t* below = sets_.bits(lower);
    for (int k = 0; k < sets_.words() && sum <= enough; ++k)
        for (uint64_t word = up.at_witness[k] & ~below[k]; word; word &= word - 1)
            sum += facts_.read_bytes(k * 64 + lowest_bit(word));
    return std::max(sum, at_start);
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
        find_last_uses();
        out.peak = sequence_peak(true);
        return out;
    }
    out.recompute = find_replays();
    set_sequence(true);
    find_last_uses();
    out.kept = kept();
    out.peak = sequence_peak(false);
    const Bytes forward = forward_peak();
    const bool choice = std::any_of(replays_.begin(), replays_.end(), [](const auto& r) { return r.first > 0; });
    if (choice && out.peak > forward) {
        set_sequence(false);
        find_last_uses();
        const Bytes late = sequence_peak(false);
        out.eager = out.peak <= late;
        out.peak = std::min(out.peak, late);
    }
    out.peak = std::max(out.peak, forward);
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

void SegmentCosts::set_sequence(bool eager) {
    sequence_.clear();
    if (eager)
        std::sort(replays_.begin(), replays_.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    else
        std::stable_sort(replays_.begin(), replays_.end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
    auto next = replays_.begin();
    for (int k = 0; k <= static_cast<int>(steps_.size()); ++k) {
        for (; next != replays_.end() && (eager || next->first <= k); ++next) sequence_.push_back(next->second);
        if (k < static_cast<int>(steps_.size())) sequence_.push_back(facts_.nodes() + steps_[k]);
    }
}

void SegmentCosts::find_last_uses() {
    for (int item : touched_) last_use_[item] = -1;
    touched_.clear();
    for (int k = 0; k < static_cast<int>(sequence_.size()); ++k) {
        const FlatOp& op = facts_.op(sequence_[k]);
        for (const int* item = op.touch; item != op.touch_end; ++item) {
            if (last_use_[*item] < 0) touched_.push_back(*item);
            last_use_[*item] = k;
        }
    }
}

Bytes SegmentCosts::bytes_at_start(bool with_forward) const {
    Bytes live = facts_.of(upper_).carried;
    for (Value x : facts_.of(lower_).dying)
        if (last_use_[x] < 0) live -= facts_.bytes(x);
    if (with_forward) return live;
    for (Node v : nodes_)
        for (Value x : graph_.nodes[v].writes)
            if (facts_.held(upper_, x) && (last_use_[x] >= 0 || facts_.stays(lower_, x))) live += facts_.bytes(x);
    return live;
}

// Bytes that the writes of this op take over from reads that end with it.
Bytes SegmentCosts::overlay_gain(const FlatOp& op, int position) const {
    OverlayGain gain(graph_);
    for (const Overlay* o = op.overlay; o != op.overlay_end; ++o) {
        const auto [written, read] = *o;
        if (born_[written] != position || last_use_[read] != position || facts_.stays(lower_, read)) continue;
        gain.add(written, read);
    }
    return gain.bytes();
}

// Highest bytes above M(U_{i-1}) while sequence_ runs.  With the forward (the last segment) every value of the
// segment is written in the sequence; without it the kept ones are there from the start.
Bytes SegmentCosts::sequence_peak(bool with_forward) {
    for (int item : touched_) {
        const bool written_here = item < facts_.values() ? in_segment(item) && (with_forward || !facts_.held(upper_, item))
                                                         : !facts_.held(upper_, item);
        born_[item] = written_here ? kAbsent : kBefore;
    }
    Bytes live = bytes_at_start(with_forward), peak = live;
    for (int k = 0; k < static_cast<int>(sequence_.size()); ++k) {
        const FlatOp& op = facts_.op(sequence_[k]);
        for (const int* item = op.write; item != op.write_end; ++item)
            if (born_[*item] == kAbsent) {
                born_[*item] = k;
                live += facts_.bytes(*item);
            }
        const Bytes gain = op.overlay == op.overlay_end ? 0 : overlay_gain(op, k);
        peak = std::max(peak, live + op.workspace - gain);
        for (const int* item = op.touch; item != op.touch_end; ++item)
            if (last_use_[*item] == k && !facts_.stays(lower_, *item)) live -= facts_.bytes(*item);
    }
    return peak;
}

// What the segment adds to U: its own kept values, less what was kept for it alone and is not wanted any more.
Bytes SegmentCosts::kept() const {
    Bytes sum = 0;
    for (Node v : nodes_)
        for (Value x : graph_.nodes[v].writes)
            if (facts_.held(upper_, x)) sum += facts_.bytes(x);
    for (Value id : facts_.of(lower_).dying) {
        const ValueInfo& x = graph_.values[id];
        if (x.producer < 0 || x.kept || !x.back_owners.empty() || last_use_[id] >= 0) continue;
        const auto& readers = x.readers;
        if (std::all_of(readers.begin(), readers.end(), [&](Node v) { return sets_.has(upper_, v); })) sum -= x.bytes;
    }
    return sum;
}

}  // namespace layermem
