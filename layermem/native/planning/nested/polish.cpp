// Edits are tried in place and undone; an edit costs microseconds.
#include "planning/nested/polish.h"

#include <algorithm>

#include "planning/nested/editable_order.h"

namespace layermem::planning::nested {
namespace {

constexpr uint64_t kSeed = 0;
constexpr int64_t kCoolings = 256;
constexpr double kFactor = 0.993733;      // of a cooling: its 256th power is 0.2
constexpr Seconds kLeastSeconds = 1e-12;  // so that quotients stay finite

// SplitMix64 (Steele et al. 2014).
class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed) {}
    uint64_t bits() {
        uint64_t x = state_ += 0x9e3779b97f4a7c15;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
        x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
        return x ^ (x >> 31);
    }
    size_t below(size_t count) { return static_cast<size_t>(((bits() >> 32) * count) >> 32); }
    // Returns about an exponential number of mean 1: log2 of a uniform number, linear between powers of two.
    double exponential() {
        const uint64_t x = bits() | 1;
        const int zeros = __builtin_clzll(x);
        const double fraction = static_cast<double>((x << zeros) >> 11) / static_cast<double>(uint64_t{1} << 53);
        return (zeros + 2 * (1 - fraction)) * 0.6931471805599453;
    }

  private:
    uint64_t state_;
};

class Annealing {
  public:
    Annealing(const LayoutGraph& graph, const std::vector<OpId>& order, const std::vector<BufferId>& evictable,
              const std::vector<BufferId>& dropped, int overlays, Bytes budget_bytes, bool is_free,
              const SearchSettings& settings)
        : graph_(graph),
          settings_(settings),
          budget_bytes_(budget_bytes),
          is_free_(is_free),
          evictable_(evictable),
          producer_(graph.buffers().size(), -1),
          is_fixed_(graph.ops().size(), 0),
          order_(graph, order, overlays),
          random_(kSeed) {
        std::vector<char> is_evictable(graph.buffers().size(), 0), is_dropped(graph.buffers().size(), 0);
        for (BufferId b : evictable) is_evictable.at(b) = 1;
        for (BufferId b : dropped) is_dropped.at(b) = 1;
        Seconds seconds = 0;
        int count = 0;
        for (OpId op : order) {
            const OpId again = graph.ops()[op].recompute;
            if (again < 0) continue;
            for (BufferId b : graph.ops()[again].writes) {
                if (is_evictable[b]) producer_[b] = op;
                is_fixed_[op] = is_fixed_[op] || is_dropped[b];
            }
            seconds += graph.ops()[again].seconds;
            ++count;
        }
        mean_seconds_ = count ? seconds / count : 0;
        best_ = order;
        best_seconds_ = order_.recompute_seconds();
    }

    std::vector<OpId> run(int64_t edits, const std::function<void()>& interrupt) {
        cool(mean_seconds_ * settings_.hottest, edits, interrupt, [&](double temperature) {
            if (best_seconds_ > 0) try_edit(temperature);
        });
        return best_;
    }

    std::vector<OpId> lower_peak(int64_t edits, const std::function<void()>& interrupt) {
        Bytes least = order_.peak_bytes();
        cool(static_cast<double>(least) * settings_.hottest_peak, edits, interrupt, [&](double temperature) {
            if (least <= budget_bytes_) return;
            const double limit = static_cast<double>(order_.peak_bytes()) + temperature * random_.exponential();
            begin_edit();
            if (!shift() || static_cast<double>(order_.peak_bytes()) > limit) undo_edit();
            if (order_.peak_bytes() >= least) return;
            least = order_.peak_bytes();
            best_ = order_.order();
        });
        return best_;
    }

  private:
    template <class Attempt>
    void cool(double temperature, int64_t edits, const std::function<void()>& interrupt, Attempt attempt) {
        for (int64_t cooling = 0; cooling < kCoolings; ++cooling, temperature *= kFactor) {
            interrupt();
            for (int64_t i = 0; i < edits / kCoolings; ++i) attempt(temperature);
        }
    }

    void begin_edit() {
        order_.begin_edit();
        is_full_ = false;
    }

    void undo_edit() {
        order_.undo_edit();
        if (is_full_) order_.spread();
    }

    void try_edit(double temperature) {
        limit_ = order_.recompute_seconds() + temperature * random_.exponential();
        begin_edit();
        bool edited = edit() && order_.recompute_seconds() <= limit_;
        for (int i = 0; edited && order_.peak_bytes() > budget_bytes_; ++i)
            edited = i < settings_.repairs && evict_at(order_.peak_slot()) && order_.recompute_seconds() <= limit_;
        if (!edited || is_full_) {
            undo_edit();
            return;
        }
        if (order_.recompute_seconds() < best_seconds_ * (1 - 1e-9)) {
            best_seconds_ = order_.recompute_seconds();
            best_ = order_.order();
        }
    }

    bool edit() {
        if (is_free_ && random_.below(100) < settings_.shift_percent) return shift();
        if (random_.below(100) < settings_.exchange_percent) return exchange();
        const size_t kind = random_.below(4);
        if (kind == 0) return insert_random();
        if (order_.recomputations().empty()) return false;
        const Slot slot = order_.recomputations()[random_.below(order_.recomputations().size())];
        const OpId op = order_.op(slot);
        if (is_fixed_[op]) return false;
        remove_with_sources(slot);
        if (kind == 1) return true;
        if (kind == 2) return insert_random();
        // Inserts it again at another place: before a reader of its results.
        const auto& writes = graph_.ops()[graph_.ops()[op].recompute].writes;
        const BufferId b = writes[random_.below(writes.size())];
        Slot reader = -1;
        for (size_t i = 0; i < settings_.repair_candidates && reader < 0; ++i) {
            const Slot at = order_.occupied()[random_.below(order_.occupied().size())];
            const Slot use = order_.use_from(b, at);
            if (use >= 0 && order_.use_before(b, use) >= 0) reader = use;
        }
        return reader >= 0 && insert(op, reader);
    }

    // Runs an op earlier or later, between the ops that have to stay before and after it.
    bool shift() {
        const Slot slot = order_.occupied()[random_.below(order_.occupied().size())];
        const auto [first, last] = order_.bounds(slot);
        const Slot next = order_.occupied_from(first + 1 + static_cast<Slot>(random_.below(last - first)));
        if (next > last || next == slot || next == order_.slots() || order_.previous(next) == slot) return false;
        is_full_ = !order_.move_before(slot, next);
        return !is_full_;
    }

    // Recomputes a large or long-lived value, and keeps values that fit in its bytes instead.
    bool exchange() {
        const Seconds limit = limit_;
        limit_ += settings_.exchange_ratio * mean_seconds_;
        const bool evicted = evict_at(order_.occupied()[random_.below(order_.occupied().size())]);
        limit_ = limit;
        for (int i = 0, failures = 0; evicted && i < settings_.fill_draws && failures < settings_.fill_failures; ++i) {
            if (order_.recomputations().empty()) break;
            const Slot slot = order_.recomputations()[random_.below(order_.recomputations().size())];
            if (is_fixed_[order_.op(slot)] || !order_.may_fit_without(slot, budget_bytes_)) continue;
            const size_t mark = order_.mark();
            remove_with_sources(slot);
            if (order_.peak_bytes() <= budget_bytes_) continue;
            order_.undo_edit(mark);
            ++failures;
        }
        return evicted;
    }

    // Recomputes a value before an op that reads it.
    bool insert_random() {
        const Slot slot = order_.occupied()[random_.below(order_.occupied().size())];
        const auto& reads = order_.form(slot).reads;
        if (reads.empty()) return false;
        const BufferId b = reads[random_.below(reads.size())];
        if (producer_[b] < 0 || order_.use_before(b, slot) == order_.previous(slot)) return false;
        return insert(producer_[b], slot);
    }

    // Inserts the recomputation of an op before a slot, preceded by those of its missing inputs, if possible.
    bool insert(OpId op, Slot slot, Seconds after = 0) {
        after += graph_.ops()[graph_.ops()[op].recompute].seconds;
        if (order_.recompute_seconds() + after > limit_) return false;
        for (BufferId b : graph_.ops()[graph_.ops()[op].recompute].reads)
            if (producer_[b] >= 0 && !order_.is_resident(b, slot) && order_.use_before(b, slot) >= 0 &&
                random_.below(8) && !insert(producer_[b], slot, after))
                return false;
        if (!order_.insert_before(slot, op)) {
            is_full_ = true;
            return false;
        }
        return true;
    }

    // Removes also the recomputations that nothing reads any more.
    void remove_with_sources(Slot slot) {
        std::vector<Slot> sources;
        for (BufferId b : order_.form(slot).reads) sources.push_back(order_.write_before(b, slot));
        order_.remove(slot);
        for (Slot source : sources)
            if (source >= 0 && order_.op(source) >= 0 && order_.is_recomputation(source) &&
                !is_fixed_[order_.op(source)] && order_.is_needless(source))
                remove_with_sources(source);
    }

    // Recomputes a value that the op at the slot does not touch before its next use: of some resident ones, the one
    // that frees most bytes for longest per second of its recomputation.
    bool evict_at(Slot slot) {
        if (evictable_.empty()) return false;
        double most = 0;
        BufferId best = -1;
        size_t candidates = 1 + random_.below(settings_.repair_candidates);  // the fewer, the less greedy
        for (int draw = 0; draw < settings_.repair_draws && candidates; ++draw) {
            const BufferId b = evictable_[random_.below(evictable_.size())];
            if (producer_[b] < 0 || !order_.is_resident(b, slot + 1)) continue;
            const Slot before = order_.use_before(b, slot + 1), after = order_.use_from(b, slot + 1);
            if (before == slot) continue;
            --candidates;
            const Seconds seconds = std::max(chain_seconds(producer_[b], after, settings_.repair_depth), kLeastSeconds);
            const double value = static_cast<double>(graph_.buffers()[b].bytes) * (after - before) / seconds;
            if (value > most) {
                most = value;
                best = b;
            }
        }
        return best >= 0 && insert(producer_[best], order_.use_from(best, slot + 1));
    }

    // Returns the seconds of a recomputation before the slot, with those that it needs; a shared one counts twice.
    Seconds chain_seconds(OpId op, Slot slot, int most) const {
        const liveness::Op& again = graph_.ops()[graph_.ops()[op].recompute];
        Seconds seconds = again.seconds;
        for (BufferId b : again.reads)
            if (most && producer_[b] >= 0 && !order_.is_resident(b, slot))
                seconds += chain_seconds(producer_[b], slot, most - 1);
        return seconds;
    }

    const LayoutGraph& graph_;
    const SearchSettings& settings_;
    const Bytes budget_bytes_;
    const bool is_free_;
    const std::vector<BufferId> evictable_;
    std::vector<OpId> producer_;  // per buffer: the op whose recomputation writes it, -1 if none
    std::vector<char> is_fixed_;  // per op: its recomputations stay
    Seconds mean_seconds_ = 0;
    EditableOrder order_;
    Random random_;
    bool is_full_ = false;  // an edit found no empty slot
    std::vector<OpId> best_;
    Seconds best_seconds_ = 0;
    Seconds limit_ = 0;  // of recomputation after the current edit
};

}  // namespace

std::vector<OpId> polish(const LayoutGraph& graph, const std::vector<OpId>& order,
                         const std::vector<BufferId>& evictable, const std::vector<BufferId>& dropped, int overlays,
                         Bytes budget_bytes, int64_t edits, bool is_free, const SearchSettings& settings,
                         const std::function<void()>& interrupt) {
    return Annealing(graph, order, evictable, dropped, overlays, budget_bytes, is_free, settings).run(edits, interrupt);
}

std::vector<OpId> lowest_order(const LayoutGraph& graph, const std::vector<OpId>& order, int overlays,
                               Bytes budget_bytes, int64_t edits, const SearchSettings& settings,
                               const std::function<void()>& interrupt) {
    return Annealing(graph, order, {}, {}, overlays, budget_bytes, true, settings).lower_peak(edits, interrupt);
}

}  // namespace layermem::planning::nested
