// The peak of a list of actions, by plain liveness analysis: no lower sets, no bounds, no incremental state.
//
// It is called once per plan, so clarity comes before speed.
#include "planning/liveness/actions.h"

#include <algorithm>

#include "planning/liveness/overlay_gain.h"

namespace layermem::planning::liveness {
namespace {

// One pass from the end finds, for each action, the items that die with it; one pass from the start counts bytes.
class PeakSimulator {
  public:
    PeakSimulator(const StepGraph& graph, const std::vector<Action>& actions)
        : graph_(graph), actions_(actions), values_(static_cast<int>(graph.values.size())) {}

    Bytes run() {
        // Order within an action: allocate what it writes, count with its workspace, free what dies with it.
        find_deaths();
        std::vector<char> alive(graph_.item_count(), 0);
        Bytes live = 0;
        for (Value x = 0; x < values_; ++x)  // inputs are there from the start, if anything reads them
            if (graph_.values[x].producer < 0 && used_[x]) {
                alive[x] = 1;
                live += graph_.values[x].bytes;
            }
        Bytes peak = live;
        for (size_t k = 0; k < actions_.size(); ++k) {
            // A gradient that exists is accumulated into: it is written, but not allocated.
            std::vector<Item> allocated;
            for (Item item : writes(actions_[k]))
                if (!alive[item]) {
                    alive[item] = 1;
                    live += graph_.item_bytes(item);
                    allocated.push_back(item);
                }
            peak = std::max(peak, live + workspace_bytes(actions_[k]) - overlaid_bytes(k, allocated));
            for (Item item : deaths_[k]) {
                alive[item] = 0;
                live -= graph_.item_bytes(item);
            }
        }
        return peak;
    }

  private:
    // A gradient that is written is read as well, since writes accumulate.  So is a `kept` value whose producer is
    // recomputed, which uses the value instead of recomputing it (batch statistics).
    std::vector<Item> reads(const Action& a) const {
        std::vector<Item> out;
        if (a.kind == ActionKind::backward) {
            const StepInfo& s = graph_.steps[a.id];
            out.assign(s.values.begin(), s.values.end());
            for (Grad g : s.reads) out.push_back(values_ + g);
            for (Grad g : s.writes) out.push_back(values_ + g);
        } else {
            const NodeInfo& v = graph_.nodes[a.id];
            out.assign(v.reads.begin(), v.reads.end());
            if (a.kind == ActionKind::recompute)
                for (Value x : v.writes)
                    if (graph_.values[x].kept) out.push_back(x);
        }
        return out;
    }
    std::vector<Item> writes(const Action& a) const {
        std::vector<Item> out;
        if (a.kind == ActionKind::backward)
            for (Grad g : graph_.steps[a.id].writes) out.push_back(values_ + g);
        else
            for (Value x : graph_.nodes[a.id].writes) out.push_back(x);
        return out;
    }
    Bytes workspace_bytes(const Action& a) const {
        return a.kind == ActionKind::backward ? graph_.steps[a.id].workspace_bytes : graph_.nodes[a.id].workspace_bytes;
    }
    // Backward liveness analysis.  A value that is written again, without a read before that, is dead in between; a
    // gradient is accumulated instead.
    void find_deaths() {
        deaths_.assign(actions_.size(), {});
        used_.assign(graph_.item_count(), 0);
        std::vector<char> needed(graph_.item_count(), 0);  // by a later action, or at the end of the step
        for (size_t g = 0; g < graph_.grads.size(); ++g) needed[values_ + g] = graph_.grads[g].final;
        for (size_t k = actions_.size(); k-- > 0;) {
            auto mark = [&](Item item) {
                if (!needed[item]) deaths_[k].push_back(item);
                needed[item] = 1;
                used_[item] = 1;
            };
            const auto read = reads(actions_[k]);
            for (Item item : writes(actions_[k])) {
                mark(item);
                // Before this write the old bytes are dead, unless the action itself reads them.
                const bool is_overwritten = std::find(read.begin(), read.end(), item) == read.end();
                if (is_overwritten) needed[item] = 0;
            }
            for (Item item : read) mark(item);
        }
    }
    // Returns the bytes that the items allocated by action k take over from items that die with it.
    Bytes overlaid_bytes(size_t k, const std::vector<Item>& allocated) const {
        auto contains = [](const std::vector<Item>& list, Item item) {
            return std::find(list.begin(), list.end(), item) != list.end();
        };
        OverlayGain gain(graph_);
        auto add = [&](const std::vector<Overlay>& overlays, Item first_written, Item first_read) {
            for (const auto& overlay : overlays) {
                const Item written = first_written + overlay.first;
                const Item read = first_read + overlay.second;
                if (contains(allocated, written) && contains(deaths_[k], read)) gain.add(written, read);
            }
        };
        if (actions_[k].kind == ActionKind::backward) {
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
    std::vector<std::vector<Item>> deaths_;  // per action
    std::vector<char> used_;                 // per item: some action reads or writes it
};

}  // namespace

Bytes compute_peak(const StepGraph& graph, const std::vector<Action>& actions) {
    return PeakSimulator(graph, actions).run();
}

}  // namespace layermem::planning::liveness
