// Cuts of the network of one op, and the least seconds that they allow.
#include "planning/bounds/moment.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace layermem::planning::bounds {

namespace {

constexpr int kSource = 0, kSink = 1;
constexpr double kNone = std::numeric_limits<double>::infinity();
constexpr double kScale = 4503599627370496.0;  // 2^52: the sum of all finite capacities in whole numbers
constexpr double kClose = 1e-9;                // relative; a cut no further below the known ones is none of them
constexpr int kMaxCuts = 40;                   // of one curve; seldom a dozen
constexpr Bytes kAnything = std::numeric_limits<Bytes>::max();

bool contains(const std::vector<BufferId>& buffers, BufferId buffer) {
    return std::find(buffers.begin(), buffers.end(), buffer) != buffers.end();
}

}  // namespace

Moment::Moment(const StepBounds& step, OpId op)
    : step_(step), op_(op), need_node_(step.bytes_.size(), -1), again_node_(step.ops_.size(), -1) {
    find_relatives(op, false, &before_);
    find_relatives(op, true, &after_);
    before_seconds_ = after_seconds_ = step.ops_[op].first.seconds;
    for (size_t other = 0; other < step.ops_.size(); ++other) {
        if (before_[other]) before_seconds_ += step.ops_[other].first.seconds;
        if (after_[other]) after_seconds_ += step.ops_[other].first.seconds;
    }
    find_operands();
    for (size_t buffer = 0; buffer < step.bytes_.size(); ++buffer)
        if (is_needed(static_cast<BufferId>(buffer))) needed_bytes_ += static_cast<double>(step.bytes_[buffer]);
}

void Moment::prepare() {
    if (!again_bytes_.empty()) return;
    find_bytes_to_recompute();
    build_network();
}

void Moment::find_relatives(OpId op, bool descendants, std::vector<char>* found) const {
    found->assign(step_.ops_.size(), false);
    std::vector<OpId> stack{op};
    while (!stack.empty()) {
        const auto& from = step_.ops_[stack.back()];
        stack.pop_back();
        for (const auto& [other, buffer] : descendants ? from.children : from.parents) {
            if ((*found)[other]) continue;
            (*found)[other] = true;
            stack.push_back(other);
        }
    }
}

// Finds the bytes that o uses.  An output that may overlay an input takes no bytes; then the input ends, so holding it
// takes separate bytes.
void Moment::find_operands() {
    const Form& form = step_.ops_[op_].first;
    in_use_ = step_.in_use(form);
    free_.assign(step_.bytes_.size(), false);
    for (const auto* operands : {&form.reads, &form.updates, &form.writes})
        for (const BufferId buffer : *operands) free_[buffer] = true;
    bool one_choice = true;  // each output on one input, and each input below one output
    for (const auto& a : form.overlays)
        for (const auto& b : form.overlays)
            one_choice = one_choice && (&a == &b || (a.first != b.first && a.second != b.second));
    if (one_choice)
        for (const auto& [out, over] : form.overlays) free_[over] = step_.persistent_[over];
    for (size_t buffer = 0; buffer < step_.bytes_.size(); ++buffer) {
        if (!step_.persistent_[buffer] || free_[buffer]) continue;
        const auto& readers = step_.readers_[buffer];
        const bool returns = std::any_of(readers.begin(), readers.end(), [&](OpId reader) { return after_[reader]; });
        (returns ? returning_bytes_ : other_persistent_bytes_) += step_.bytes_[buffer];
    }
}

// An op that runs again after o does so before the first run of a descendant that needs it.  On a path of first runs
// from o to that descendant, one of the values between neighbours is live at any time, so at least the smallest.  The
// path with the largest such value counts (widest path), and the descendant with the smallest.
void Moment::find_bytes_to_recompute() {
    const size_t count = step_.ops_.size();
    std::vector<Bytes> width(count, 0), profit(count, kAnything);
    width[op_] = kAnything;
    for (size_t op = op_ + 1; op < count; ++op) {
        if (!after_[op]) continue;
        for (const auto& [parent, buffer] : step_.ops_[op].parents) {
            const bool counts = !step_.persistent_[buffer] && !step_.touched_again_[buffer];
            if (counts) width[op] = std::max(width[op], std::min(width[parent], step_.bytes_[buffer]));
        }
    }
    again_bytes_.assign(count, 0);
    for (size_t op = count; op-- > 0;) {
        const auto& form = step_.ops_[op].again;
        if (!form || !before_[op]) continue;
        for (const auto* written : {&form->writes, &form->updates}) {
            for (const BufferId buffer : *written) {
                for (const OpId reader : step_.readers_[buffer])
                    if (after_[reader]) profit[op] = std::min(profit[op], width[reader]);
                for (const OpId reader : step_.again_[buffer])
                    if (before_[reader]) profit[op] = std::min(profit[op], profit[reader]);
            }
        }
        const Bytes beside = profit[op] == kAnything ? 0 : profit[op];
        again_bytes_[op] = step_.in_use(*form) + step_.untouched_persistent_bytes(*form) + beside;
    }
}

// ---- the network --------------------------------------------------------------------------------------------------

void Moment::build_network() {
    for (size_t buffer = 0; buffer < step_.bytes_.size(); ++buffer)
        if (is_needed(static_cast<BufferId>(buffer)))
            infinite_.push_back(flow_.add_edge(kSource, need(static_cast<BufferId>(buffer))));
    while (!waiting_.empty()) {
        const BufferId buffer = waiting_.back();
        waiting_.pop_back();
        const OpId producer = step_.producer_[buffer];
        const auto& form = step_.ops_[producer].again;
        const int to = form && contains(form->writes, buffer) ? again(producer) : kSink;
        held_.push_back({flow_.add_edge(need_node_[buffer], to), need_node_[buffer], to, step_.bytes_[buffer]});
    }
}

// Returns whether an ancestor made the value and it takes bytes in addition to those of o.
bool Moment::is_from_before(BufferId buffer) const {
    const OpId producer = step_.producer_[buffer];
    return !step_.persistent_[buffer] && !free_[buffer] && producer >= 0 && before_[producer];
}

bool Moment::is_needed(BufferId buffer) const {
    const auto& readers = step_.readers_[buffer];
    return is_from_before(buffer) &&
           std::any_of(readers.begin(), readers.end(), [&](OpId reader) { return after_[reader]; });
}

int Moment::need(BufferId buffer) {
    if (need_node_[buffer] < 0) {
        need_node_[buffer] = flow_.add_node();
        waiting_.push_back(buffer);
    }
    return need_node_[buffer];
}

int Moment::again(OpId op) {
    if (again_node_[op] >= 0) return again_node_[op];
    const int node = again_node_[op] = flow_.add_node();
    const int edge = flow_.add_edge(node, kSink), always = flow_.add_edge(kSource, node);
    runs_again_.push_back({edge, always, node, op});
    recomputable_.push_back(op);
    const Form& form = *step_.ops_[op].again;
    for (const auto* operands : {&form.reads, &form.updates}) {
        for (const BufferId buffer : *operands) {
            if (is_from_before(buffer)) infinite_.push_back(flow_.add_edge(node, need(buffer)));
        }
    }
    return node;
}

Moment::Cut Moment::cut(double byte_price, double second_price, const Reruns& reruns) {
    steps_ += static_cast<int64_t>(held_.size() + 2 * runs_again_.size() + infinite_.size());
    double sum = 0;
    for (const HeldEdge& held : held_) sum += byte_price * static_cast<double>(held.bytes);
    for (const AgainEdge& run : runs_again_) sum += second_price * step_.ops_[run.op].again->seconds;
    const double scale = kScale / std::max(sum, 1e-300);
    for (const int edge : infinite_) flow_.set_capacity(edge, MaxFlow::kInfinite);
    for (const HeldEdge& held : held_)
        flow_.set_capacity(held.edge, static_cast<int64_t>(byte_price * static_cast<double>(held.bytes) * scale));
    for (const AgainEdge& run : runs_again_) {
        const double seconds = second_price * step_.ops_[run.op].again->seconds;
        const auto capacity = static_cast<int64_t>(seconds * scale);
        flow_.set_capacity(run.edge, reruns[run.op] == Rerun::kNever ? MaxFlow::kInfinite : capacity);
        flow_.set_capacity(run.always, reruns[run.op] == Rerun::kAlways ? MaxFlow::kInfinite : 0);
    }
    Cut result{0, 0, static_cast<double>(flow_.run(kSource, kSink)) / scale, {}};
    for (const HeldEdge& held : held_)
        if (flow_.on_source_side(held.from) && (held.to == kSink || !flow_.on_source_side(held.to)))
            result.bytes += static_cast<double>(held.bytes);
    for (const AgainEdge& run : runs_again_) {
        result.again.push_back(flow_.on_source_side(run.from));
        if (result.again.back()) result.seconds += step_.ops_[run.op].again->seconds;
    }
    return result;
}

Reruns Moment::possible_reruns(Bytes budget_bytes, std::optional<Bytes> host_bytes) {
    prepare();
    Reruns reruns(step_.ops_.size(), Rerun::kFree);
    if (!host_bytes) return reruns;
    for (const OpId op : recomputable_)
        if (again_bytes_[op] - *host_bytes > budget_bytes) reruns[op] = Rerun::kNever;
    return reruns;
}

OpId Moment::dearest_difference(const Cut& a, const Cut& b) const {
    OpId dearest = -1;
    Seconds most = -1;
    for (size_t i = 0; i < runs_again_.size(); ++i) {
        const Seconds seconds = step_.ops_[runs_again_[i].op].again->seconds;
        if (a.again[i] == b.again[i] || seconds <= most) continue;
        most = seconds;
        dearest = runs_again_[i].op;
    }
    return dearest;
}

// ---- bytes --------------------------------------------------------------------------------------------------------

// In a smaller budget fewer ops can run again, and more bytes have to be held.  Between two budgets at which an op
// becomes possible, the least bytes to hold are constant: the first interval that contains its own need has the answer.
Bytes Moment::least_bytes(Bytes host_bytes, Bytes known_bytes) {
    const Bytes fixed = in_use_ + returning_bytes_ + other_persistent_bytes_ - host_bytes;
    const auto need_at = [&](Bytes budget_bytes) {
        const Cut least = cut(1.0, 0.0, possible_reruns(budget_bytes, host_bytes));
        return fixed + static_cast<Bytes>(std::ceil(least.value - 0.5));  // whole bytes, but for rounding
    };
    if (fixed + static_cast<Bytes>(needed_bytes_) <= known_bytes) return known_bytes;
    prepare();
    if (need_at(known_bytes) <= known_bytes) return known_bytes;
    std::vector<Bytes> steps{known_bytes};
    for (const OpId op : recomputable_)
        if (again_bytes_[op] - host_bytes > known_bytes) steps.push_back(again_bytes_[op] - host_bytes);
    std::sort(steps.begin(), steps.end());
    size_t low = 0, high = steps.size() - 1;  // the first interval [steps[i], steps[i + 1]) that contains its need
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (need_at(steps[middle]) < steps[middle + 1]) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return std::max(steps[low], need_at(steps[low]));
}

// ---- seconds ------------------------------------------------------------------------------------------------------

Seconds Moment::seconds_with(double host_bytes, double recompute_seconds) const {
    const double made_here = std::max(0.0, host_bytes - static_cast<double>(returning_bytes_));
    return std::max({step_.seconds_ + recompute_seconds, before_seconds_ + host_bytes / step_.link_.h2d,
                     after_seconds_ + recompute_seconds + made_here / step_.link_.d2h});
}

// Minimizes seconds_with over the bytes on the host, from `low` to `high`, with the lines of the curve.  The function
// is convex, and the result is the intersection of two of its tangents, so never above the minimum.
Moment::Best Moment::best_host_bytes(const Curve& curve, double device_bytes, double low, double high) const {
    const auto tangent = [&](double host_bytes) {  // {value, slope} of the highest line there
        Line recompute{0, 0};
        for (const Line& line : curve.lines) {
            const double seconds = line.value - line.price * (device_bytes + host_bytes);
            if (seconds > recompute.value) recompute = {line.price, seconds};
        }
        const double over = host_bytes - static_cast<double>(returning_bytes_);
        const std::pair<double, double> pieces[] = {
            {step_.seconds_ + recompute.value, -recompute.price},
            {before_seconds_ + host_bytes / step_.link_.h2d, 1 / step_.link_.h2d},
            {after_seconds_ + recompute.value + std::max(0.0, over) / step_.link_.d2h,
             (over > 0 ? 1 / step_.link_.d2h : 0.0) - recompute.price},
        };
        return *std::max_element(std::begin(pieces), std::end(pieces));
    };
    auto at_low = tangent(low), at_high = tangent(high);
    if (at_low.second >= 0 || low >= high) return {at_low.first, low};
    if (at_high.second <= 0) return {at_high.first, high};
    for (int round = 0;; ++round) {
        const double x = std::clamp((at_high.first - at_high.second * high - at_low.first + at_low.second * low) /
                                        (at_low.second - at_high.second),
                                    low, high);
        const double meet = at_low.first + at_low.second * (x - low);
        const auto there = tangent(x);
        if (there.first <= meet * (1 + kClose) || round == kMaxCuts) return {meet, x};
        if (there.second < 0) {
            low = x, at_low = there;
        } else {
            high = x, at_high = there;
        }
    }
}

Moment::Space Moment::space(Bytes budget_bytes, std::optional<Bytes> host_bytes) const {
    // Persistent buffers that nothing needs after o go to the host first: they do not come back in this step.
    Space space{static_cast<double>(budget_bytes - in_use_ - returning_bytes_), kNone, 0};
    if (host_bytes) {
        const Bytes away = std::min(other_persistent_bytes_, *host_bytes);
        space.host_bytes = static_cast<double>(*host_bytes - away);
        space.device_bytes -= static_cast<double>(other_persistent_bytes_ - away);
    }
    space.most_away = std::max(0.0, needed_bytes_ - space.device_bytes);
    return space;
}

Seconds Moment::least_seconds(Bytes budget_bytes, std::optional<Bytes> host_bytes, Seconds known_seconds) {
    if (space(budget_bytes, host_bytes).most_away == 0) return step_.seconds_;
    const Reruns reruns = possible_reruns(budget_bytes, host_bytes);
    return relax(curves_[reruns], reruns, budget_bytes, host_bytes, known_seconds).seconds;
}

Relaxation Moment::relax(const Reruns& reruns, Bytes budget_bytes, std::optional<Bytes> host_bytes,
                         Seconds known_seconds) {
    Curve curve;
    return relax(curve, reruns, budget_bytes, host_bytes, known_seconds);
}

Relaxation Moment::relax(Curve& curve, const Reruns& reruns, Bytes budget_bytes, std::optional<Bytes> host_bytes,
                         Seconds known_seconds) {
    const Space space = this->space(budget_bytes, host_bytes);
    if (curve.cuts.empty()) {
        curve.cuts = {cut(1.0, 0.0, reruns), cut(0.0, 1.0, reruns)};
        curve.lines = {{0.0, curve.cuts.back().value}};
    }
    const double least_away = std::max(0.0, curve.cuts.front().bytes - space.device_bytes);
    const double high = std::min(space.host_bytes, space.most_away);
    if (least_away > high + 0.5) return {kNone, kNone, -1};
    const double low = std::min(least_away, high);
    const auto best_of = [&] { return best_host_bytes(curve, space.device_bytes, low, high); };
    Relaxation result{0, kNone, -1};
    const auto reach = [&](const Cut& cut) {
        const double away = std::max(0.0, cut.bytes - space.device_bytes);
        if (away <= high + 0.5) result.reached = std::min(result.reached, seconds_with(away, cut.seconds));
    };
    for (const Cut& cut : curve.cuts) reach(cut);
    Best best = best_of();
    for (;;) {
        const double held = space.device_bytes + best.host_bytes;
        size_t right = 1;
        while (right + 1 < curve.cuts.size() && curve.cuts[right].bytes < held) ++right;
        const Cut a = curve.cuts[right - 1], b = curve.cuts[right];
        result.open = dearest_difference(a, b);
        if (b.bytes - a.bytes < 0.5 || static_cast<int>(curve.lines.size()) >= kMaxCuts) break;
        // Interpolation between the known cuts gives an upper limit of the seconds here.
        const double share = std::clamp((b.bytes - held) / (b.bytes - a.bytes), 0.0, 1.0);
        if (seconds_with(best.host_bytes, b.seconds + share * (a.seconds - b.seconds)) <= known_seconds) break;
        const double price = (a.seconds - b.seconds) / (b.bytes - a.bytes);
        const auto same = [&](const Line& line) { return std::abs(line.price - price) <= kClose * price; };
        if (price <= 0 || std::any_of(curve.lines.begin(), curve.lines.end(), same)) break;
        const Cut found = cut(price, 1.0, reruns);
        reach(found);
        curve.lines.push_back({price, found.value});
        if (found.value < (a.seconds + price * a.bytes) * (1 - kClose)) {
            const auto place = curve.cuts.begin() + static_cast<std::ptrdiff_t>(right);
            if (found.bytes <= a.bytes) {
                curve.cuts[right - 1] = found;
            } else if (found.bytes >= b.bytes) {
                curve.cuts[right] = found;
            } else {
                curve.cuts.insert(place, found);
            }
        }
        best = best_of();
    }
    result.seconds = best.seconds;
    return result;
}

}  // namespace layermem::planning::bounds
