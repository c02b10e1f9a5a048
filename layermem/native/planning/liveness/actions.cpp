// From a chain to the list of everything that runs, and the exact peak of such a list.
#include <algorithm>

#include "planning/liveness/segment_costs.h"

namespace layermem::planning {

// The paper drops all of V_i outside the boundary and rebuilds it, wanted or not, the last segment included.
void SegmentCosts::append_paper_segment(std::vector<Action>& out) const {
    for (Node v : nodes_) {
        const auto& after = graph_.nodes[v].after;
        if (std::all_of(after.begin(), after.end(), [&](Node w) { return sets_.has(upper_, w); }))
            out.push_back({Verb::replay, v});
    }
    for (Step s : steps_) out.push_back({Verb::backward, s});
}

std::vector<Action> SegmentCosts::actions(const std::vector<int>& chain) {
    std::vector<Action> out;
    int lower = 0;
    for (int upper : chain) {
        collect(lower, upper);
        for (Node v : nodes_) out.push_back({Verb::forward, v});
        lower = upper;
    }
    for (int i = static_cast<int>(chain.size()) - 1; i >= 0; --i) {
        const Segment segment = evaluate(i > 0 ? chain[i - 1] : 0, chain[i]);
        collect(i > 0 ? chain[i - 1] : 0, chain[i]);
        if (model_ == Model::paper) {
            append_paper_segment(out);
        } else if (i == static_cast<int>(chain.size()) - 1) {
            for (Step s : steps_) out.push_back({Verb::backward, s});
        } else {
            set_sequence(segment.eager);
            for (int op : sequence_) {
                const bool is_step = op >= facts_.nodes();
                out.push_back({is_step ? Verb::backward : Verb::replay, is_step ? op - facts_.nodes() : op});
            }
        }
    }
    return out;
}

namespace {

// One pass from the end finds, for each action, the items whose stay ends with it; one pass from the start counts.
class Replay {
  public:
    Replay(const StepGraph& graph, const std::vector<Action>& actions)
        : graph_(graph), actions_(actions), values_(static_cast<int>(graph.values.size())) {}

    Bytes peak() {
        find_ends();
        std::vector<char> here(graph_.item_count(), 0);
        Bytes live = 0;
        for (int x = 0; x < values_; ++x)
            if (graph_.values[x].producer < 0 && used_[x]) {
                here[x] = 1;
                live += graph_.values[x].bytes;
            }
        Bytes highest = live;
        for (size_t k = 0; k < actions_.size(); ++k) {
            std::vector<int> fresh;
            for (int item : writes(actions_[k]))
                if (!here[item]) {
                    here[item] = 1;
                    live += graph_.item_bytes(item);
                    fresh.push_back(item);
                }
            highest = std::max(highest, live + workspace(actions_[k]) - overlaid(k, fresh));
            for (int item : ends_[k]) {
                here[item] = 0;
                live -= graph_.item_bytes(item);
            }
        }
        return highest;
    }

  private:
    std::vector<int> reads(const Action& a) const {
        std::vector<int> out;
        if (a.verb == Verb::backward) {
            const StepInfo& s = graph_.steps[a.id];
            out.assign(s.values.begin(), s.values.end());
            for (Grad g : s.reads) out.push_back(values_ + g);
            for (Grad g : s.writes) out.push_back(values_ + g);  // a write adds to what is there
        } else {
            const NodeInfo& v = graph_.nodes[a.id];
            out.assign(v.reads.begin(), v.reads.end());
            if (a.verb == Verb::replay)
                for (Value x : v.writes)
                    if (graph_.values[x].kept) out.push_back(x);
        }
        return out;
    }
    std::vector<int> writes(const Action& a) const {
        std::vector<int> out;
        if (a.verb == Verb::backward)
            for (Grad g : graph_.steps[a.id].writes) out.push_back(values_ + g);
        else
            for (Value x : graph_.nodes[a.id].writes) out.push_back(x);
        return out;
    }
    Bytes workspace(const Action& a) const {
        return a.verb == Verb::backward ? graph_.steps[a.id].workspace : graph_.nodes[a.id].workspace;
    }
    // A value that is written again and not read before that is dead in between; a gradient is added to instead.
    void find_ends() {
        ends_.assign(actions_.size(), {});
        used_.assign(graph_.item_count(), 0);
        std::vector<char> wanted(graph_.item_count(), 0);
        for (size_t g = 0; g < graph_.grads.size(); ++g) wanted[values_ + g] = graph_.grads[g].final;
        for (size_t k = actions_.size(); k-- > 0;) {
            auto mark = [&](int item) {
                if (!wanted[item]) ends_[k].push_back(item);
                wanted[item] = used_[item] = 1;
            };
            const auto read = reads(actions_[k]);
            for (int item : writes(actions_[k])) {
                mark(item);
                const bool begins = std::find(read.begin(), read.end(), item) == read.end();
                if (begins) wanted[item] = 0;
            }
            for (int item : read) mark(item);
        }
    }
    Bytes overlaid(size_t k, const std::vector<int>& fresh) const {
        auto among = [](const std::vector<int>& list, int item) {
            return std::find(list.begin(), list.end(), item) != list.end();
        };
        OverlayGain gain(graph_);
        auto add = [&](const std::vector<Overlay>& list, int written_from, int read_from) {
            for (const auto& overlay : list) {
                const int written = written_from + overlay.first, read = read_from + overlay.second;
                if (among(fresh, written) && among(ends_[k], read)) gain.add(written, read);
            }
        };
        if (actions_[k].verb == Verb::backward) {
            add(graph_.steps[actions_[k].id].over_values, values_, 0);
            add(graph_.steps[actions_[k].id].over_grads, values_, values_);
        } else {
            add(graph_.nodes[actions_[k].id].overlays, 0, 0);
        }
        return gain.bytes();
    }

    const StepGraph& graph_;
    const std::vector<Action>& actions_;
    const int values_;
    std::vector<std::vector<int>> ends_;  // per action: items whose stay ends with it
    std::vector<char> used_;              // per item: some action touches it
};

}  // namespace

Bytes peak_of(const StepGraph& graph, const std::vector<Action>& actions) { return Replay(graph, actions).peak(); }

}  // namespace layermem::planning
