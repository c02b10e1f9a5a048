// A plan of a range is judged by one pass over its ops; there are some thousand of them in a large net.
#include "planning/nested/block_chain.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace layermem::planning::nested {
namespace {

constexpr int32_t kMaxBlocks = 64;
constexpr int32_t kLengths[] = {1, 2, 3, 4, 6, 8, 12, 16};  // of ranges, in blocks
constexpr int32_t kKept = 8;                                // numbers of kept values that are tried for a range
constexpr Position kNever = std::numeric_limits<Position>::max();

}  // namespace

BlockChain::BlockChain(const OrderItems& items, Position backward) : of_(items) {
    const bool in_forward =
        std::all_of(of_.producers.begin(), of_.producers.end(), [&](Position p) { return p < backward; });
    if (!in_forward || backward < 1) return;
    cut(backward);
    while (size() > kMaxBlocks) join_smallest();
    assign_backward(backward);
}

// ---- blocks -------------------------------------------------------------------------------------------------------

void BlockChain::cut(Position backward) {
    // Number of items that are read after each position, and the sum of their ids.
    std::vector<int64_t> count(backward + 1, 0), sum(backward + 1, 0);
    std::vector<Position> last_read(of_.producers);
    for (Position p = 0; p < backward; ++p)
        for (const Form* form : {&of_.forms[p], &of_.again[p]})
            for (Evictable item : form->reads) last_read[item] = std::max(last_read[item], p);
    for (Evictable item = 0; item < static_cast<Evictable>(of_.producers.size()); ++item) {
        count[of_.producers[item]] += 1;
        count[last_read[item]] -= 1;
        sum[of_.producers[item]] += item;
        sum[last_read[item]] -= item;
    }
    std::partial_sum(count.begin(), count.end(), count.begin());
    std::partial_sum(sum.begin(), sum.end(), sum.begin());
    for (Position p = 0; p < backward; ++p) {
        const bool is_end = p == backward - 1;
        if (count[p] > 1 && !is_end) continue;
        const Evictable boundary = count[p] == 1 && !is_end ? static_cast<Evictable>(sum[p]) : -1;
        if (!is_end && !blocks_.empty() && blocks_.back().boundary == boundary) {
            blocks_.back().end = p + 1;  // one value over several positions
            continue;
        }
        blocks_.push_back({blocks_.empty() ? 0 : blocks_.back().end, p + 1, 0, boundary, {}});
    }
    for (Block& block : blocks_)
        block.first_item = static_cast<Evictable>(
            std::lower_bound(of_.producers.begin(), of_.producers.end(), block.first) - of_.producers.begin());
}

// Merges the two neighbours that make the fewest bytes.
void BlockChain::join_smallest() {
    auto bytes = [&](size_t i) {
        const auto end = i + 1 < blocks_.size() ? blocks_[i + 1].first_item : static_cast<Evictable>(of_.bytes.size());
        return std::accumulate(of_.bytes.begin() + blocks_[i].first_item, of_.bytes.begin() + end, Bytes{0});
    };
    size_t best = 0;
    Bytes least = std::numeric_limits<Bytes>::max(), before = bytes(0);
    for (size_t i = 0; i + 1 < blocks_.size(); ++i) {
        const Bytes after = bytes(i + 1);
        if (before + after < least) {
            least = before + after;
            best = i;
        }
        before = after;
    }
    blocks_[best].end = blocks_[best + 1].end;
    blocks_[best].boundary = blocks_[best + 1].boundary;
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(best) + 1);
}

// Assigns ops from the last block down: an op stays in the block of the op before it, until one reads inner values of
// an earlier block, or only boundaries of earlier blocks.
void BlockChain::assign_backward(Position backward) {
    std::vector<int32_t> block_of(of_.producers.size());
    std::vector<char> is_boundary(of_.producers.size(), 0);
    for (int32_t i = size() - 1, item = static_cast<Evictable>(of_.producers.size()); i >= 0; --i) {
        while (item > blocks_[i].first_item) block_of[--item] = i;
        if (blocks_[i].boundary >= 0) is_boundary[blocks_[i].boundary] = 1;
    }
    int32_t current = size() - 1;
    for (Position p = backward; p < static_cast<Position>(of_.order.size()); ++p) {
        int32_t inner = -1, outer = -1;
        for (Evictable item : of_.forms[p].reads) {
            int32_t& latest = is_boundary[item] ? outer : inner;
            latest = std::max(latest, block_of[item]);
        }
        if (inner >= 0)
            current = std::min(current, inner);
        else if (outer >= 0)
            current = std::min(current, outer + 1);
        blocks_[current].backward.push_back(p);
    }
}

// ---- plans of ranges -------------------------------------------------------------------------------------------

BlockChain::BlockRange BlockChain::range(int32_t begin, int32_t end) const {
    const Evictable first_item = blocks_[begin].first_item;
    const Evictable end_item = end < size() ? blocks_[end].first_item : static_cast<Evictable>(of_.producers.size());
    const Evictable boundary = blocks_[end - 1].boundary;
    BlockRange range{begin, end, first_item, static_cast<size_t>(end_item - first_item), {}, {}};
    std::vector<char> is_read(range.count, 0);
    for (int32_t i = end - 1; i >= begin; --i)
        for (Position p : blocks_[i].backward) {
            range.backward.push_back(p);
            for (Evictable item : of_.forms[p].reads)
                if (item >= first_item && item < end_item && item != boundary && !is_read[item - first_item]) {
                    is_read[item - first_item] = 1;
                    range.rank.push_back(item);
                }
        }
    std::sort(range.rank.begin(), range.rank.end(), [&](Evictable a, Evictable b) {
        const double left = of_.again_seconds[of_.producers[a]] * static_cast<double>(of_.bytes[b]);
        const double right = of_.again_seconds[of_.producers[b]] * static_cast<double>(of_.bytes[a]);
        return left != right ? left > right : a < b;
    });
    return range;
}

std::vector<char> BlockChain::kept(const BlockRange& range, const RangeChoice& choice) const {
    std::vector<char> kept(range.count, 0);
    for (int32_t i = 0; i < choice.kept; ++i) kept[range.rank[i] - range.first_item] = 1;
    return kept;
}

// Returns the forward ops that the kept values and the boundary need.
std::vector<Position> BlockChain::needed_forward(const BlockRange& range, const std::vector<char>& kept) const {
    std::vector<char> needed = kept;
    const Evictable boundary = blocks_[range.end - 1].boundary;
    if (boundary >= range.first_item) needed[boundary - range.first_item] = 1;
    std::vector<Position> positions;
    for (auto i = static_cast<int64_t>(range.count) - 1; i >= 0; --i) {
        if (!needed[i]) continue;
        const Position p = of_.producers[range.first_item + i];
        if (positions.empty() || positions.back() != p) positions.push_back(p);
        for (Evictable item : of_.again[p].reads)
            if (item >= range.first_item) needed[item - range.first_item] = 1;
    }
    std::reverse(positions.begin(), positions.end());
    return positions;
}

// Computes each value that is not kept once, before the first op that needs it or, unless lazy, before the first op
// that needs any.  Returns none if an op cannot run again.
std::vector<BlockChain::Entry> BlockChain::backward_entries(const BlockRange& range, const std::vector<char>& kept,
                                                            bool lazy) const {
    const Evictable begin = range.first_item, end = begin + static_cast<Evictable>(range.count);
    std::vector<Position> need(range.count, kNever);  // per item: index of the backward op
    const auto ops = static_cast<Position>(range.backward.size());
    for (Position k = ops - 1; k >= 0; --k)
        for (Evictable item : of_.forms[range.backward[k]].reads)
            if (item >= begin && item < end) need[item - begin] = k;
    Position earliest = kNever;
    std::vector<std::pair<Position, Position>> again;  // (need, position)
    for (Evictable item = end - 1; item >= begin; --item) {
        const Position at = need[item - begin], p = of_.producers[item];
        if (kept[item - begin] || at == kNever) continue;
        if (!of_.repeatable[p]) return {};
        again.push_back({at, p});
        earliest = std::min(earliest, at);
        for (Evictable input : of_.again[p].reads)
            if (input >= begin) need[input - begin] = std::min(need[input - begin], at);
    }
    if (!lazy)
        for (auto& [at, p] : again) at = earliest;
    std::sort(again.begin(), again.end());
    again.erase(std::unique(again.begin(), again.end()), again.end());
    std::vector<Entry> entries;
    std::vector<char> has_run(of_.order.size(), 0);
    auto next = again.begin();
    for (Position k = 0; k < ops; ++k) {
        const Position p = range.backward[k];
        for (; next != again.end() && next->first == k; ++next) {
            if (has_run[next->second]) continue;  // for another of its values
            has_run[next->second] = 1;
            entries.push_back({next->second, true, of_.before[p]});
        }
        entries.push_back({p, false, of_.during[p]});
    }
    return entries;
}

// Returns the most bytes in use: bytes of no item, and values of the range from producer to last reader, or beyond.
Bytes BlockChain::peak_bytes(const BlockRange& range, const std::vector<Entry>& entries, std::vector<char> resident,
                             const std::vector<char>& stays) const {
    const Evictable begin = range.first_item, end = begin + static_cast<Evictable>(range.count);
    auto is_own = [&](Evictable item) { return item >= begin && item < end; };
    auto form_of = [&](const Entry& entry) -> const Form& {
        return entry.again ? of_.again[entry.position] : of_.forms[entry.position];
    };
    std::vector<int32_t> reads_left(range.count, 0);
    for (const Entry& entry : entries)
        for (Evictable item : form_of(entry).reads)
            if (is_own(item)) ++reads_left[item - begin];
    Bytes live = 0, peak = 0;
    for (size_t i = 0; i < range.count; ++i)
        if (resident[i]) live += of_.bytes[begin + static_cast<Evictable>(i)];
    std::vector<BufferId> granted;
    for (const Entry& entry : entries) {
        const Form& form = form_of(entry);
        for (Evictable item : form.writes)
            if (is_own(item) && !resident[item - begin]) {
                resident[item - begin] = 1;
                live += of_.bytes[item];
            }
        for (Evictable item : form.reads)
            if (is_own(item)) --reads_left[item - begin];
        Bytes overlaid = 0;
        granted.clear();
        for (const Form::Overlay& o : form.overlays) {
            if (!is_own(o.over) || reads_left[o.over - begin] || stays[o.over - begin]) continue;
            const auto& begins = of_.begins[entry.position];
            const bool is_new =
                o.out >= 0 ? std::find(form.writes.begin(), form.writes.end(), o.out) != form.writes.end()
                           : !entry.again && std::find(begins.begin(), begins.end(), o.out_buffer) != begins.end();
            auto is_party = [&](BufferId b) { return b == o.out_buffer || b == of_.buffers[o.over]; };
            if (!is_new || std::any_of(granted.begin(), granted.end(), is_party)) continue;
            granted.insert(granted.end(), {o.out_buffer, of_.buffers[o.over]});
            overlaid += o.bytes;
        }
        peak = std::max(peak, entry.base_bytes + live + form.workspace_bytes - overlaid);
        for (const auto* list : {&form.reads, &form.writes})
            for (Evictable item : *list)
                if (is_own(item) && resident[item - begin] && !reads_left[item - begin] && !stays[item - begin]) {
                    resident[item - begin] = 0;
                    live -= of_.bytes[item];
                }
    }
    return peak;
}

// Returns the costs of the first forward and of later ones.
Bytes BlockChain::forward_peak(const BlockRange& range, const std::vector<char>& kept,
                               const std::vector<Position>& needed) const {
    std::vector<char> stays = kept;
    const Evictable boundary = blocks_[range.end - 1].boundary;
    if (boundary >= range.first_item) stays[boundary - range.first_item] = 1;
    std::vector<Entry> first, again;
    for (Position p = blocks_[range.begin].first; p < blocks_[range.end - 1].end; ++p) first.push_back({p, false, 0});
    for (Position p : needed) again.push_back({p, true, 0});
    const std::vector<char> none(range.count, 0);
    return std::max(peak_bytes(range, first, none, stays), peak_bytes(range, again, none, stays));
}

Seconds BlockChain::again_seconds(const std::vector<Position>& positions) const {
    Seconds seconds = 0;
    for (Position p : positions) seconds += of_.again_seconds[p];
    return seconds;
}

ChainPlans BlockChain::plans(Bytes most_bytes) const {
    ChainPlans plans;
    plans.choices.resize(size());
    plans.chain.plans.resize(size());
    Bytes base = of_.before.back();
    for (int32_t i = 0; i < size(); ++i) {
        const BlockRange own = range(i, i + 1);
        const std::vector<char> none(own.count, 0);
        const std::vector<Position> needed = needed_forward(own, none);
        if (!blocks_[i].backward.empty()) base = of_.before[blocks_[i].backward.front()];
        plans.chain.boundary_bytes.push_back(blocks_[i].boundary < 0 ? 0 : of_.bytes[blocks_[i].boundary]);
        plans.chain.base_bytes.push_back(base);
        plans.chain.forward_bytes.push_back(forward_peak(own, none, needed));
        plans.chain.forward_seconds.push_back(again_seconds(needed));
        for (int32_t length : kLengths) {
            if (i + length > size()) break;
            const BlockRange whole = range(i, i + length);
            const auto most = static_cast<int32_t>(whole.rank.size());
            std::vector<std::pair<RangePlan, RangeChoice>> found;
            for (int32_t step = 0, last_kept = -1; step <= kKept; ++step) {
                const int32_t count = most * step / kKept;
                if (count == last_kept) continue;
                last_kept = count;
                const std::vector<char> kept = this->kept(whole, {count, false});
                const std::vector<Position> forward = needed_forward(whole, kept);
                RangePlan plan{whole.end, 0, forward_peak(whole, kept, forward), 0, again_seconds(forward), 0};
                for (size_t k = 0; k < whole.count; ++k)
                    if (kept[k]) plan.kept_bytes += of_.bytes[whole.first_item + static_cast<Evictable>(k)];
                for (bool lazy : {false, true}) {
                    if (lazy && count == most) continue;
                    const std::vector<Entry> entries = backward_entries(whole, kept, lazy);
                    if (entries.empty() && !whole.backward.empty()) continue;
                    plan.backward_bytes = peak_bytes(whole, entries, kept, std::vector<char>(whole.count, 0));
                    plan.backward_seconds = 0;
                    for (const Entry& entry : entries)
                        if (entry.again) plan.backward_seconds += of_.again_seconds[entry.position];
                    if (std::max(plan.forward_bytes, plan.backward_bytes) <= most_bytes)
                        found.push_back({plan, {count, lazy}});
                }
            }
            auto is_no_worse = [](const RangePlan& a, const RangePlan& b) {
                return a.kept_bytes <= b.kept_bytes && a.forward_bytes <= b.forward_bytes &&
                       a.backward_bytes <= b.backward_bytes && a.backward_seconds <= b.backward_seconds;
            };
            for (size_t k = 0; k < found.size(); ++k) {
                bool is_dominated = false;
                for (size_t j = 0; j < found.size() && !is_dominated; ++j)
                    is_dominated = j != k && is_no_worse(found[j].first, found[k].first) &&
                                   (j < k || !is_no_worse(found[k].first, found[j].first));
                if (is_dominated) continue;
                plans.chain.plans[i].push_back(found[k].first);
                plans.choices[i].push_back(found[k].second);
            }
        }
    }
    return plans;
}

std::vector<OpId> BlockChain::order(const ChainPlans& plans, const std::vector<ChainStep>& steps) const {
    std::vector<OpId> order;
    for (const ChainStep& step : steps) {
        if (step.is_forward && step.runs_first) {
            for (Position p = blocks_[step.begin].first; p < blocks_[step.end - 1].end; ++p)
                order.push_back(of_.order[p]);
            continue;
        }
        if (step.is_forward && step.plan < 0) {
            for (int32_t i = step.begin; i < step.end; ++i) {
                const BlockRange own = range(i, i + 1);
                for (Position p : needed_forward(own, std::vector<char>(own.count, 0))) order.push_back(of_.order[p]);
            }
            continue;
        }
        const BlockRange whole = range(step.begin, step.end);
        const RangeChoice choice = plans.choices[step.begin][step.plan];
        const std::vector<char> kept = this->kept(whole, choice);
        if (step.is_forward)
            for (Position p : needed_forward(whole, kept)) order.push_back(of_.order[p]);
        else
            for (const Entry& entry : backward_entries(whole, kept, choice.lazy))
                order.push_back(of_.order[entry.position]);
    }
    return order;
}

}  // namespace layermem::planning::nested
