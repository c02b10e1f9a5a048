#include "planning/liveness.h"

#include <algorithm>

namespace layermem {
namespace {

constexpr int kAbsent = -2, kBefore = -1;  // of born_: not resident, resident from before the sequence

}  // namespace

Bytes SegmentCosts::peak_bound(int lower, int upper, Bytes enough) const {
    const SetInfo &low = info_[lower], &up = info_[upper];
    if (model_ == Model::paper) return 2 * (up.bytes - low.bytes) + up.carried;
    Bytes sum = up.carried - low.dying_bytes;
    if (up.first_owner < 0 || sets_.has(lower, up.first_owner)) return sum;
    if (sum + up.resident - low.readable > enough) return sum + up.resident - low.readable;
    const uint64_t* below = sets_.bits(lower);
    for (int k = 0; k < sets_.words() && sum <= enough; ++k)
        for (uint64_t word = up.at_first[k] & ~below[k]; word; word &= word - 1)
            sum += readable_[k * 64 + lowest_bit(word)];
    return sum;
}

Segment SegmentCosts::evaluate(int lower, int upper) {
    return model_ == Model::paper ? paper_pair(lower, upper) : live_pair(lower, upper);
}

Segment SegmentCosts::paper_pair(int lower, int upper) const {
    const SetInfo &low = info_[lower], &up = info_[upper];
    Segment out;
    out.recompute = up.time - low.time;
    for (Node v : up.boundary_nodes)
        if (!sets_.has(lower, v)) {
            out.recompute -= graph_.nodes[v].ticks;
            out.kept += graph_.node_bytes(v);
        }
    out.peak = 2 * (up.bytes - low.bytes) + up.carried;
    out.eager = true;
    return out;
}

Segment SegmentCosts::live_pair(int lower, int upper) {
    collect(lower, upper);
    Segment out;
    if (upper == sets_.size() - 1) {
        sequence_.clear();
        for (Node v : nodes_) sequence_.push_back({Verb::forward, v});
        for (Step s : steps_) sequence_.push_back({Verb::backward, s});
        find_last_uses();
        out.peak = sequence_peak(true);
        return out;
    }
    out.recompute = find_replays();
    set_sequence(true);
    find_last_uses();
    for (Node v : nodes_)
        for (Value x : graph_.nodes[v].writes)
            if (cached_[x]) out.kept += graph_.values[x].bytes;
    out.kept -= released();
    out.eager = true;
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
        for (Value x : graph_.nodes[*v].writes) cached_[x] = cached(x, upper);
    }
    if (!std::is_sorted(steps_.begin(), steps_.end())) std::sort(steps_.begin(), steps_.end());
}

// The first run of the segment: what is not kept dies with its last reader, and all its readers lie inside.
Bytes SegmentCosts::forward_peak() const {
    Bytes live = 0, peak = 0;
    for (Node v : nodes_) {
        const NodeInfo& node = graph_.nodes[v];
        auto dies = [&](Value id) {
            const ValueInfo& x = graph_.values[id];
            return x.producer >= 0 && in_segment_[x.producer] && !cached_[id] && x.readers.back() == v;
        };
        OverlayGain gain(graph_);
        for (const auto& [written, read] : node.overlays)
            if (dies(read)) gain.add(written, read);
        for (Value x : node.writes) live += graph_.values[x].bytes;
        peak = std::max(peak, live + node.workspace - gain.bytes());
        for (Value x : node.writes)
            if (!cached_[x] && graph_.values[x].readers.empty()) live -= graph_.values[x].bytes;
        for (Value x : node.reads)
            if (dies(x)) live -= graph_.values[x].bytes;
    }
    return peak;
}

// Which nodes must run again, and before which step the first need for each arises.  Returns their time.
Ticks SegmentCosts::find_replays() {
    for (Value x : wanted_) want_[x] = kNever;
    wanted_.clear();
    replays_.clear();
    auto want = [&](Value x, int position) {
        const Node producer = graph_.values[x].producer;
        if (producer < 0 || !in_segment_[producer] || cached_[x]) return;
        if (want_[x] == kNever) wanted_.push_back(x);
        want_[x] = std::min(want_[x], position);
    };
    const int end = static_cast<int>(steps_.size());
    for (int k = 0; k < end; ++k)
        for (Value x : graph_.steps[steps_[k]].values) want(x, k);
    for (Node v : nodes_)
        for (Value x : graph_.nodes[v].writes)
            if (any_in(graph_.values[x].back_owners, lower_)) want(x, end);
    Ticks time = 0;
    for (auto v = nodes_.rbegin(); v != nodes_.rend(); ++v) {
        const NodeInfo& node = graph_.nodes[*v];
        int first = kNever;
        for (Value x : node.writes) first = std::min(first, want_[x]);
        if (first == kNever) continue;
        for (Value x : node.reads) want(x, first);
        replays_.push_back({first, *v});
        time += node.replay_ticks;
    }
    return time;
}

void SegmentCosts::set_sequence(bool eager) {
    sequence_.clear();
    std::sort(replays_.begin(), replays_.end(), [&](const auto& a, const auto& b) {
        return !eager && a.first != b.first ? a.first < b.first : a.second < b.second;
    });
    auto next = replays_.begin();
    for (int k = 0; k <= static_cast<int>(steps_.size()); ++k) {
        for (; next != replays_.end() && (eager || next->first <= k); ++next)
            sequence_.push_back({Verb::replay, next->second});
        if (k < static_cast<int>(steps_.size())) sequence_.push_back({Verb::backward, steps_[k]});
    }
}

void SegmentCosts::use(int item, int position) {
    if (last_use_[item] < 0) touched_.push_back(item);
    last_use_[item] = position;
}

void SegmentCosts::find_last_uses() {
    for (int item : touched_) last_use_[item] = -1;
    touched_.clear();
    const int values = static_cast<int>(graph_.values.size());
    for (int k = 0; k < static_cast<int>(sequence_.size()); ++k) {
        const auto [verb, id] = sequence_[k];
        if (verb == Verb::backward) {
            const StepInfo& step = graph_.steps[id];
            for (Value x : step.values) use(x, k);
            for (Grad g : step.reads) use(values + g, k);
            for (Grad g : step.writes) use(values + g, k);
        } else {
            for (Value x : graph_.nodes[id].reads) use(x, k);
            for (Value x : graph_.nodes[id].writes) use(x, k);
        }
    }
}

// May its bytes go after its last use in this sequence?
bool SegmentCosts::mortal(int item) const {
    const int values = static_cast<int>(graph_.values.size());
    if (item >= values) {
        const GradInfo& g = graph_.grads[item - values];
        return !g.final && !any_in(g.touchers, lower_);
    }
    const ValueInfo& x = graph_.values[item];
    if (x.producer >= 0 && !sets_.has(lower_, x.producer)) return !any_in(x.back_owners, lower_);
    const auto& dying = info_[lower_].dying;
    return std::binary_search(dying.begin(), dying.end(), item);
}

Bytes SegmentCosts::bytes_at_start(bool with_forward) const {
    Bytes live = info_[upper_].carried;
    for (Value x : info_[lower_].dying)
        if (last_use_[x] < 0) live -= graph_.values[x].bytes;
    if (with_forward) return live;
    for (Node v : nodes_)
        for (Value x : graph_.nodes[v].writes)
            if (cached_[x] && (last_use_[x] >= 0 || !mortal(x))) live += graph_.values[x].bytes;
    return live;
}

// Bytes that the writes of this action take over from reads that end with it.
Bytes SegmentCosts::overlay_gain(const Action& action, int position) const {
    const int values = static_cast<int>(graph_.values.size());
    OverlayGain gain(graph_);
    auto add = [&](const std::vector<Overlay>& list, int written_from, int read_from) {
        for (const auto& overlay : list) {
            const int written = written_from + overlay.first, read = read_from + overlay.second;
            if (born_[written] == position && last_use_[read] == position && mortal(read)) gain.add(written, read);
        }
    };
    if (action.verb == Verb::backward) {
        add(graph_.steps[action.id].over_values, values, 0);
        add(graph_.steps[action.id].over_grads, values, values);
    } else {
        add(graph_.nodes[action.id].overlays, 0, 0);
    }
    return gain.bytes();
}

// Highest bytes above M(U_{i-1}) while sequence_ runs.  With the forward (the last segment) every value of the
// segment is written in the sequence; without it the kept ones are there from the start.
Bytes SegmentCosts::sequence_peak(bool with_forward) {
    const int values = static_cast<int>(graph_.values.size());
    for (int item : touched_) {
        if (item >= values) {
            born_[item] = any_out(graph_.grads[item - values].writers, upper_) ? kBefore : kAbsent;
        } else {
            const Node v = graph_.values[item].producer;
            const bool written_here = v >= 0 && in_segment_[v] && (with_forward || !cached_[item]);
            born_[item] = written_here ? kAbsent : kBefore;
        }
    }
    Bytes live = bytes_at_start(with_forward), peak = live;
    auto write = [&](int item, int position) {
        if (born_[item] != kAbsent) return;
        born_[item] = position;
        live += graph_.item_bytes(item);
    };
    auto end = [&](int item, int position) {
        if (last_use_[item] == position && mortal(item)) {
            live -= graph_.item_bytes(item);
            last_use_[item] = kNever;
        }
    };
    for (int k = 0; k < static_cast<int>(sequence_.size()); ++k) {
        const auto [verb, id] = sequence_[k];
        if (verb == Verb::backward) {
            const StepInfo& step = graph_.steps[id];
            for (Grad g : step.writes) write(values + g, k);
            peak = std::max(peak, live + step.workspace - overlay_gain(sequence_[k], k));
            for (Value x : step.values) end(x, k);
            for (Grad g : step.reads) end(values + g, k);
            for (Grad g : step.writes) end(values + g, k);
        } else {
            const NodeInfo& node = graph_.nodes[id];
            for (Value x : node.writes) write(x, k);
            peak = std::max(peak, live + node.workspace - overlay_gain(sequence_[k], k));
            for (Value x : node.reads) end(x, k);
            for (Value x : node.writes) end(x, k);
        }
    }
    return peak;
}

// Bytes of U_{i-1} that nothing wants once the segment has run forward.
Bytes SegmentCosts::released() const {
    Bytes sum = 0;
    for (Value id : info_[lower_].dying) {
        const ValueInfo& x = graph_.values[id];
        if (x.producer < 0 || x.kept || !x.back_owners.empty() || last_use_[id] >= 0) continue;
        if (!any_out(x.readers, upper_)) sum += x.bytes;
    }
    return sum;
}

}  // namespace layermem
