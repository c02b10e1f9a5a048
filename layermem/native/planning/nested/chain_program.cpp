// O(blocks^2 x (plans + blocks) x units); choices are recovered from the values, so that none is stored.
#include "planning/nested/chain_program.h"

#include <algorithm>
#include <limits>

namespace layermem::planning::nested {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

}  // namespace

ChainProgram::ChainProgram(Chain chain, Bytes most_bytes, int32_t units)
    : chain_(std::move(chain)), blocks_(static_cast<int32_t>(chain_.boundary_bytes.size())), units_(units) {
    least_base_ = *std::min_element(chain_.base_bytes.begin(), chain_.base_bytes.end());
    unit_bytes_ = std::max<Bytes>(1, (most_bytes - least_base_ + units - 1) / units);
    values_.assign(static_cast<size_t>(blocks_) * blocks_ * (static_cast<size_t>(units_) + 1), kNever);
    for (int32_t length = 1; length <= blocks_; ++length)
        for (int32_t s = 0; s + length <= blocks_; ++s) {
            const int32_t t = s + length;
            double* best = &values_[at(s, t)];
            for_each_choice(s, t, [&](const Choice& choice) {
                for (int32_t m = choice.least; m <= units_; ++m) best[m] = std::min(best[m], seconds_of(choice, m));
                return false;
            });
        }
}

int32_t ChainProgram::rounded_up(Bytes bytes) const {
    const Bytes units = bytes <= 0 ? 0 : (bytes + unit_bytes_ - 1) / unit_bytes_;
    return static_cast<int32_t>(std::min<Bytes>(units, units_ + 1));
}

int32_t ChainProgram::units_of(Bytes bytes) const {
    return bytes < least_base_ ? -1
                               : static_cast<int32_t>(std::min<Bytes>((bytes - least_base_) / unit_bytes_, units_));
}

inline Seconds ChainProgram::seconds_of(const Choice& choice, int32_t m) const {
    const Seconds rest = choice.rest ? choice.rest[m - choice.kept] : 0.0;
    const Seconds before = choice.before ? choice.before[m] : 0.0;
    return choice.seconds + rest + before;
}

// Visits ways until `visit` returns true.
template <class Visit>
void ChainProgram::for_each_choice(int32_t s, int32_t t, Visit visit) const {
    const bool again = t < blocks_;
    const Bytes base = chain_.base_bytes[t - 1] - least_base_;
    for (int32_t i = 0; i < static_cast<int32_t>(chain_.plans[s].size()); ++i) {
        const RangePlan& plan = chain_.plans[s][i];
        if (plan.end > t) continue;
        const bool is_last = plan.end == t;
        const bool runs_forward = !(is_last && again && plan.kept_bytes == 0);
        const Bytes backward = plan.backward_bytes - least_base_;
        const int32_t kept = is_last ? 0 : rounded_up(plan.kept_bytes + chain_.boundary_bytes[plan.end - 1]);
        const int32_t least = rounded_up(runs_forward ? std::max(plan.forward_bytes + base, backward) : backward);
        const Seconds seconds = plan.backward_seconds + (runs_forward && again ? plan.forward_seconds : 0.0);
        const double* rest = is_last ? nullptr : value(plan.end, t);
        if (visit(Choice{std::max(least, kept), kept, seconds, rest, nullptr, plan.end, i})) return;
    }
    Bytes peak = 0;
    Seconds seconds = 0;
    for (int32_t k = s + 1; k < t; ++k) {
        peak = std::max(peak, chain_.forward_bytes[k - 1] + (k - 1 > s ? chain_.boundary_bytes[k - 2] : 0));
        seconds += again ? chain_.forward_seconds[k - 1] : 0.0;
        const int32_t kept = rounded_up(chain_.boundary_bytes[k - 1]);
        const int32_t least = std::max(kept, rounded_up(peak + base));
        if (visit(Choice{least, kept, seconds, value(k, t), value(s, k), k, -1})) return;
    }
}

std::vector<ChainStep> ChainProgram::steps(int32_t units) const {
    std::vector<ChainStep> steps;
    if (least_seconds(units) < kNever) append_steps(0, blocks_, units, steps);
    return steps;
}

void ChainProgram::append_steps(int32_t s, int32_t t, int32_t m, std::vector<ChainStep>& steps) const {
    const bool again = t < blocks_;
    const double best = value(s, t)[m];
    Choice chosen{};
    for_each_choice(s, t, [&](const Choice& choice) {
        chosen = choice;
        return choice.least <= m && seconds_of(choice, m) == best;
    });
    const bool is_last = chosen.end == t;
    if (!(is_last && again && chain_.plans[s][chosen.plan].kept_bytes == 0))
        steps.push_back({s, chosen.end, chosen.plan, true, !again});
    if (!is_last) append_steps(chosen.end, t, m - chosen.kept, steps);
    if (chosen.plan < 0)
        append_steps(s, chosen.end, m, steps);
    else
        steps.push_back({s, chosen.end, chosen.plan, false, false});
}

}  // namespace layermem::planning::nested
