// The costs of a segment: lower bounds from the facts of its two sets, and exact costs by a pass over its ops.
//
// evaluate() is the inner loop of the planner and runs for a large part of all pairs of sets.  So ops are flat arrays,
// working memory is reused, and a lifetime is valid only for the round that wrote it, which spares clearing the table.
//
//      lower set        segment V_i            above L_i
//      ---------|--------------------------|---------------
//               forward:  v1 v2 v3             free all but the kept values
//               backward: recomputations, steps       first_need_ says before which step a value is needed
#include "planning/liveness/segment_costs.h"

#include <algorithm>

#include "planning/liveness/overlay_gain.h"

namespace layermem::planning::liveness {
namespace {

constexpr int kNever = std::numeric_limits<int>::max();
constexpr int kMaxWitnessesUsed = 2;  // of one segment: further ones seldom raise the bound

}  // namespace

SegmentCosts::SegmentCosts(const StepGraph& graph, const LowerSets& sets, Model model)
    : graph_(graph), sets_(sets), model_(model), facts_(graph, sets) {
    in_segment_.assign(graph.nodes.size(), 0);
    first_need_.assign(graph.values.size(), kNever);
    lifetimes_.assign(graph.item_count(), {});
}

// ---- bounds -------------------------------------------------------------------------------------------------------

// Returns a bound from the bytes carried past the lower set, or resident at a witness of the upper set in the segment.
// For a witness, the quick bound comes first: all its nodes, less everything that the lower set could account for.
Bytes SegmentCosts::peak_bound(SetIndex lower, SetIndex upper, Bytes stop_above) const {
    const SetFacts& low = facts_.of(lower);
    const SetFacts& up = facts_.of(upper);
    if (model_ == Model::paper) return 2 * (up.bytes - low.bytes) + up.outside;
    // Carried bytes stay until a step of the segment has used them; dying ones may be among them.
    Bytes most = up.carried - low.dying_bytes;
    const uint64_t* below = sets_.bits(lower);
    int witnesses_left = kMaxWitnessesUsed;
    for (const PeakWitness& witness : up.peak_witnesses) {
        if (most > stop_above || witnesses_left == 0) break;
        if (sets_.has(lower, witness.owner)) continue;
        --witnesses_left;
        Bytes sum = witness.beside - low.dying_bytes;
        // If this is enough, the loop over nodes ends before it begins.
        most = std::max(most, sum + witness.node_bytes - low.read_bytes);
        for (int k = 0; k < sets_.words() && most <= stop_above; ++k)
            for (uint64_t word = witness.nodes[k] & ~below[k]; word; word &= word - 1)
                sum += facts_.read_bytes(k * 64 + lowest_bit(word));
        most = std::max(most, sum);
    }
    return most;
}

// The last segment recomputes nothing: its values still exist.  The paper recomputes all of V_i outside the boundary.
Quanta SegmentCosts::recompute_time(SetIndex lower, SetIndex upper, Quanta stop_above) const {
    const SetFacts& low = facts_.of(lower);
    const SetFacts& up = facts_.of(upper);
    if (model_ == Model::paper) {
        Quanta time = up.time - low.time;
        for (Node v : up.boundary)
            if (!sets_.has(lower, v)) time -= graph_.nodes[v].quanta;
        return time;
    }
    if (upper == sets_.size() - 1) return 0;
    if (up.recompute_time - low.recomputable_time > stop_above) return up.recompute_time - low.recomputable_time;
    Quanta sum = 0;
    const uint64_t* below = sets_.bits(lower);
    for (int k = 0; k < sets_.words() && sum <= stop_above; ++k)
        sum += facts_.recompute_quanta(k, up.recomputed[k] & ~below[k]);
    return sum;
}

// Returns the bytes that the segment adds to U: its kept values, less values kept only for it that are no longer
// needed. The paper keeps the boundary.
Bytes SegmentCosts::kept_bytes(SetIndex lower, SetIndex upper) const {
    const SetFacts& low = facts_.of(lower);
    const SetFacts& up = facts_.of(upper);
    if (model_ == Model::paper) {
        Bytes bytes = 0;
        for (Node v : up.boundary)
            if (!sets_.has(lower, v)) bytes += graph_.node_bytes(v);
        return bytes;
    }
    if (upper == sets_.size() - 1) return 0;
    Bytes sum = up.fixed_bytes - low.fixed_bytes;
    // Values marked `kept` are always kept, so their difference needs no loop; the others count only above `lower`.
    for (const auto& [node, bytes] : up.kept)
        if (!sets_.has(lower, node)) sum += bytes;
    for (Value x : low.releasable) {
        const auto& readers = graph_.values[x].readers;
        auto is_done = [&](Node v) {
            return sets_.has(upper, v) && (sets_.has(lower, v) || !facts_.is_recomputed(upper, v));
        };
        if (std::all_of(readers.begin(), readers.end(), is_done)) sum -= facts_.bytes(x);
    }
    return sum;
}

// ---- exact costs --------------------------------------------------------------------------------------------------

Segment SegmentCosts::evaluate(SetIndex lower, SetIndex upper) {
    Segment out;
    out.recompute = recompute_time(lower, upper);
    out.kept = kept_bytes(lower, upper);
    out.peak = complete_peak(forward_peak(lower, upper));
    out.eager = is_eager_;
    return out;
}

// Returns the peak of the first run; 0 for the last segment, whose forward and steps are one sequence.
Bytes SegmentCosts::forward_peak(SetIndex lower, SetIndex upper) {
    if (model_ == Model::paper) return peak_bound(lower, upper, 0);
    collect(lower, upper);
    return is_last() ? 0 : first_run_peak();
}

// Tries both orders of the recomputations; the eager one only if its lower bound is below the peak of the other.
Bytes SegmentCosts::complete_peak(Bytes forward) {
    is_eager_ = true;
    if (model_ == Model::paper) return forward;
    if (is_last()) return last_peak();
    select_recomputes();
    is_eager_ = std::all_of(recomputes_.begin(), recomputes_.end(), [](const auto& r) { return r.first == 0; });
    set_sequence(is_eager_);
    compute_lifetimes(false);
    // Both orders start with the same bytes, but their lifetimes differ.
    const Bytes start = bytes_at_start(false);
    const Bytes peak = std::max(forward, sequence_peak(start));
    if (is_eager_ || peak <= std::max(forward, eager_peak_bound())) return peak;
    set_sequence(true);
    compute_lifetimes(false);
    const Bytes eager_peak = std::max(forward, sequence_peak(start));
    is_eager_ = eager_peak <= peak;
    return std::min(peak, eager_peak);
}

// The last segment frees nothing: its forward and its steps are one sequence without recomputations.
Bytes SegmentCosts::last_peak() {
    sequence_.assign(nodes_.begin(), nodes_.end());
    for (Step s : steps_) sequence_.push_back(facts_.nodes() + s);
    compute_lifetimes(true);
    return sequence_peak(bytes_at_start(true));
}

// Sets nodes_, in_segment_ and steps_ to those of V_i.
void SegmentCosts::collect(SetIndex lower, SetIndex upper) {
    for (Node v : nodes_) in_segment_[v] = 0;
    lower_ = lower;
    upper_ = upper;
    nodes_.clear();
    steps_.clear();
    const uint64_t* low = sets_.bits(lower);
    const uint64_t* up = sets_.bits(upper);
    for (int k = 0; k < sets_.words(); ++k)
        for (uint64_t word = up[k] & ~low[k]; word; word &= word - 1) nodes_.push_back(k * 64 + lowest_bit(word));
    for (auto v = nodes_.rbegin(); v != nodes_.rend(); ++v) {
        in_segment_[*v] = 1;
        steps_.insert(steps_.end(), graph_.nodes[*v].steps.begin(), graph_.nodes[*v].steps.end());
    }
    // Steps usually come in the reverse order of their owners, and then nothing needs sorting.
    if (!std::is_sorted(steps_.begin(), steps_.end())) std::sort(steps_.begin(), steps_.end());
}

// The peak of the first run: values that are not kept die with their last reader, and all their readers are inside.
Bytes SegmentCosts::first_run_peak() const {
    Bytes live = 0, peak = 0;
    for (Node v : nodes_) {
        const FlatOp& op = facts_.op(v);
        auto dies = [&](Value x) { return facts_.last_reader(x) == v && in_segment(x) && !facts_.is_kept(upper_, x); };
        // Born with the writer, counted with its workspace, and gone after the last reader.
        for (const Item* x = op.write; x != op.write_end; ++x) live += facts_.bytes(*x);
        Bytes gain = 0;
        if (op.overlay != op.overlay_end) {
            OverlayGain granted(graph_);
            for (const Overlay* o = op.overlay; o != op.overlay_end; ++o)
                if (dies(o->second)) granted.add(o->first, o->second);
            gain = granted.bytes();
        }
        peak = std::max(peak, live + op.workspace_bytes - gain);
        for (const Item* x = op.touch; x != op.touch_end; ++x)
            if (dies(*x)) live -= facts_.bytes(*x);
    }
    return peak;
}

// Finds the nodes that must run again, and the step before which each is first needed.  By falling node, a need is
// passed on from the outputs of a recomputation to its inputs.
void SegmentCosts::select_recomputes() {
    for (Value x : needed_) first_need_[x] = kNever;
    needed_.clear();
    recomputes_.clear();
    auto need = [&](Value x, int position) {
        if (!in_segment(x) || facts_.is_kept(upper_, x)) return;
        if (first_need_[x] == kNever) needed_.push_back(x);
        first_need_[x] = std::min(first_need_[x], position);
    };
    const int end = static_cast<int>(steps_.size());
    for (int k = 0; k < end; ++k) {
        const FlatOp& op = facts_.op(facts_.nodes() + steps_[k]);
        for (const Item* x = op.touch; x != op.middle; ++x) need(*x, k);
    }
    // So far only steps have needs; the needs of recomputations follow.
    step_needed_bytes_ = 0;
    for (Value x : needed_) step_needed_bytes_ += facts_.bytes(x);
    for (auto v = nodes_.rbegin(); v != nodes_.rend(); ++v) {
        const FlatOp& op = facts_.op(*v);
        int first = kNever;
        for (const Item* x = op.write; x != op.write_end; ++x) {
            if (facts_.outlives(lower_, *x)) need(*x, end);  // a step of an earlier segment reads it
            first = std::min(first, first_need_[*x]);
        }
        // Nothing that this node writes is needed: it stays freed.
        if (first == kNever) continue;
        for (const Item* x = op.touch; x != op.middle; ++x) need(*x, first);
        recomputes_.push_back({first, *v});
    }
    std::reverse(recomputes_.begin(), recomputes_.end());
}

// Sets the sequence: recomputations by rising node, all at once (eager) or at their first need.
void SegmentCosts::set_sequence(bool eager) {
    const int end = static_cast<int>(steps_.size());
    sequence_.clear();
    if (eager) {
        for (const auto& recompute : recomputes_) sequence_.push_back(recompute.second);
        for (Step s : steps_) sequence_.push_back(facts_.nodes() + s);
        return;
    }
    // Bucket lists by position; filled from the back, so that each list is by rising node.
    first_at_.assign(end + 1, -1);
    next_at_.resize(recomputes_.size());
    for (int i = static_cast<int>(recomputes_.size()) - 1; i >= 0; --i) {
        next_at_[i] = first_at_[recomputes_[i].first];
        first_at_[recomputes_[i].first] = i;
    }
    for (int k = 0; k <= end; ++k) {
        for (int i = first_at_[k]; i >= 0; i = next_at_[i]) sequence_.push_back(recomputes_[i].second);
        if (k < end) sequence_.push_back(facts_.nodes() + steps_[k]);
    }
}

// Goes from the end of sequence_ to its start and finds the last use of each item, and the bytes that are born and die
// at each position.  With the forward (the last segment) every value of the segment is written in the sequence;
// otherwise the kept values exist from the start.  Of several writes the earliest counts, which the pass visits last.
void SegmentCosts::compute_lifetimes(bool with_forward) {
    // Entries of older rounds count as unused; the first touch from the end is the last use.
    ++round_;
    change_.assign(sequence_.size(), {});
    for (int k = static_cast<int>(sequence_.size()) - 1; k >= 0; --k) {
        const FlatOp& op = facts_.op(sequence_[k]);
        for (const Item* item = op.touch; item != op.touch_end; ++item) {
            Lifetime& lifetime = lifetimes_[*item];
            if (lifetime.round == round_) continue;
            lifetime = {round_, k, kBefore};
            if (!facts_.outlives(lower_, *item)) change_[k].dying += facts_.bytes(*item);
        }
        for (const Item* item = op.write; item != op.write_end; ++item) {
            const bool is_there = facts_.is_kept(upper_, *item) && !(with_forward && *item < facts_.values());
            if (is_there) continue;
            Lifetime& lifetime = lifetimes_[*item];
            // An earlier write: the item is alive from here on, and the later write allocates nothing.
            if (lifetime.first_write != kBefore) change_[lifetime.first_write].born -= facts_.bytes(*item);
            lifetime.first_write = k;
            change_[k].born += facts_.bytes(*item);
        }
    }
}

// Returns the bytes above M(U_{i-1}): carried bytes, less bytes that the lower set kept for this segment and that the
// sequence does not use, plus the kept values of the segment.
Bytes SegmentCosts::bytes_at_start(bool with_forward) const {
    Bytes live = facts_.of(upper_).carried;
    for (Value x : facts_.of(lower_).dying)
        if (!is_used(x)) live -= facts_.bytes(x);
    if (with_forward) return live;
    for (Node v : nodes_)
        for (const Item* x = facts_.op(v).write; x != facts_.op(v).write_end; ++x)
            if (facts_.is_kept(upper_, *x) && (is_used(*x) || facts_.outlives(lower_, *x))) live += facts_.bytes(*x);
    return live;
}

// With all recomputations before the first step, at least these bytes are resident between them: values of the segment
// that steps read or that are needed below it, and carried bytes.
Bytes SegmentCosts::eager_peak_bound() const {
    Bytes live = facts_.of(upper_).carried - facts_.of(lower_).dying_bytes + step_needed_bytes_;
    for (Node v : nodes_)
        for (const Item* x = facts_.op(v).write; x != facts_.op(v).write_end; ++x) {
            if (!facts_.is_kept(upper_, *x)) continue;
            const auto& owners = graph_.values[*x].backward_owners;
            const bool is_needed = facts_.outlives(lower_, *x) ||
                                   std::any_of(owners.begin(), owners.end(), [&](Node w) { return in_segment_[w]; });
            if (is_needed) live += facts_.bytes(*x);
        }
    return live;
}

// Returns the bytes that the writes of this op take over from reads that end with it.
Bytes SegmentCosts::overlaid_bytes(const FlatOp& op, int position) const {
    OverlayGain gain(graph_);
    for (const Overlay* o = op.overlay; o != op.overlay_end; ++o) {
        const auto [written, read] = *o;
        if (lifetimes_[written].first_write != position || lifetimes_[read].last_use != position) continue;
        if (!facts_.outlives(lower_, read)) gain.add(written, read);
    }
    return gain.bytes();
}

// Returns the most bytes above M(U_{i-1}) while sequence_ runs, with `live` bytes before it.
Bytes SegmentCosts::sequence_peak(Bytes live) const {
    Bytes peak = live;
    for (int k = 0; k < static_cast<int>(sequence_.size()); ++k) {
        const FlatOp& op = facts_.op(sequence_[k]);
        live += change_[k].born;
        const Bytes gain = op.overlay == op.overlay_end ? 0 : overlaid_bytes(op, k);
        peak = std::max(peak, live + op.workspace_bytes - gain);
        live -= change_[k].dying;
    }
    return peak;
}

// ---- actions ------------------------------------------------------------------------------------------------------

// The paper frees all of V_i outside the boundary and recomputes it, needed or not, the last segment included.
void SegmentCosts::append_paper_backward(std::vector<Action>& out) const {
    for (Node v : nodes_) {
        const auto& successors = graph_.nodes[v].successors;
        if (std::all_of(successors.begin(), successors.end(), [&](Node w) { return sets_.has(upper_, w); }))
            out.push_back({ActionKind::recompute, v});
    }
    for (Step s : steps_) out.push_back({ActionKind::backward, s});
}

// Returns the forward of all segments, then their backward phases from the last segment to the first.
std::vector<Action> SegmentCosts::actions(const std::vector<SetIndex>& chain) {
    std::vector<Action> out;
    SetIndex lower = 0;
    for (SetIndex upper : chain) {
        collect(lower, upper);
        for (Node v : nodes_) out.push_back({ActionKind::forward, v});
        lower = upper;
    }
    const int last = static_cast<int>(chain.size()) - 1;
    for (int i = last; i >= 0; --i) {
        lower = i > 0 ? chain[i - 1] : 0;
        const Segment segment = evaluate(lower, chain[i]);
        collect(lower, chain[i]);
        if (model_ == Model::paper) {
            append_paper_backward(out);
        } else if (i == last) {
            for (Step s : steps_) out.push_back({ActionKind::backward, s});
        } else {
            set_sequence(segment.eager);
            for (OpIndex op : sequence_) {
                const bool is_step = op >= facts_.nodes();
                out.push_back(
                    {is_step ? ActionKind::backward : ActionKind::recompute, is_step ? op - facts_.nodes() : op});
            }
        }
    }
    return out;
}

}  // namespace layermem::planning::liveness
