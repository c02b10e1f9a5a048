// The ops of a step with their dependencies; moment.cpp computes the bounds at each op.
#include "planning/bounds/step_bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "planning/bounds/moment.h"
#include "planning/bounds/whole_values.h"

namespace layermem::planning::bounds {

namespace {

constexpr size_t kMaxVisits = 150'000;      // ops examined x ops: bounds the time, the same on every machine
constexpr size_t kWholeOps = 3;             // ops of the highest relaxations, at which values are held whole
constexpr int64_t kWholeSteps = 2'000'000;  // of these searches for a budget: a tenth of a second

template <class Visit>
void for_each_operand(const Form& form, Visit visit) {
    for (const auto* operands : {&form.reads, &form.updates, &form.writes})
        for (const BufferId buffer : *operands) visit(buffer);
}

}  // namespace

BufferId StepBounds::add_buffer(Bytes bytes, bool is_persistent) {
    bytes_.push_back(bytes);
    persistent_.push_back(is_persistent);
    if (is_persistent) persistent_bytes_ += bytes;
    producer_.push_back(-1);
    writer_.push_back(-1);
    readers_.emplace_back();
    again_.emplace_back();
    touched_again_.push_back(false);
    return static_cast<BufferId>(bytes_.size()) - 1;
}

OpId StepBounds::add_op(Form first, std::optional<Form> again) {
    const OpId op = static_cast<OpId>(ops_.size());
    const auto check = [&](BufferId buffer) {
        if (buffer < 0 || buffer >= static_cast<BufferId>(bytes_.size()))
            throw std::out_of_range("there is no buffer " + std::to_string(buffer));
    };
    for_each_operand(first, check);
    if (again) for_each_operand(*again, check);
    Op made{std::move(first), std::move(again), {}, {}};
    for (const auto* operands : {&made.first.reads, &made.first.updates}) {
        for (const BufferId buffer : *operands) {
            readers_[buffer].push_back(op);
            if (writer_[buffer] < 0) continue;
            made.parents.emplace_back(writer_[buffer], buffer);
            ops_[writer_[buffer]].children.emplace_back(op, buffer);
        }
    }
    for (const auto* operands : {&made.first.writes, &made.first.updates})
        for (const BufferId buffer : *operands) writer_[buffer] = op;
    for (const BufferId buffer : made.first.writes)
        if (producer_[buffer] < 0) producer_[buffer] = op;
    if (made.again) {
        for_each_operand(*made.again, [&](BufferId buffer) { touched_again_[buffer] = true; });
        for (const auto* operands : {&made.again->reads, &made.again->updates})
            for (const BufferId buffer : *operands) again_[buffer].push_back(op);
    }
    seconds_ += made.first.seconds;
    ops_.push_back(std::move(made));
    return op;
}

// Returns the bytes of everything that a form touches, less the largest overlay that its permissions allow.
Bytes StepBounds::in_use(const Form& form) const {
    Bytes bytes = form.workspace_bytes, written = 0, read = 0;
    for_each_operand(form, [&](BufferId buffer) { bytes += bytes_[buffer]; });
    std::vector<BufferId> outs, overs;
    for (const auto& [out, over] : form.overlays) {
        if (std::find(outs.begin(), outs.end(), out) == outs.end()) outs.push_back(out), written += bytes_[out];
        if (std::find(overs.begin(), overs.end(), over) == overs.end()) overs.push_back(over), read += bytes_[over];
    }
    return bytes - std::min(written, read);
}

Bytes StepBounds::untouched_persistent_bytes(const Form& form) const {
    Bytes bytes = persistent_bytes_;
    for_each_operand(form, [&](BufferId buffer) { bytes -= persistent_[buffer] ? bytes_[buffer] : 0; });
    return bytes;
}

// Returns the ops at which most bytes are between their first write and their last read, in the order of the ops.
std::vector<OpId> StepBounds::peak_ops(size_t count) const {
    std::vector<OpId> first(bytes_.size(), -1), last(bytes_.size(), -1);
    for (OpId op = 0; op < static_cast<OpId>(ops_.size()); ++op) {
        for_each_operand(ops_[op].first, [&](BufferId buffer) {
            if (first[buffer] < 0) first[buffer] = op;
            last[buffer] = op;
        });
    }
    std::vector<Bytes> live(ops_.size() + 1, 0);
    for (size_t buffer = 0; buffer < bytes_.size(); ++buffer) {
        if (first[buffer] < 0) continue;
        live[first[buffer]] += bytes_[buffer];
        live[last[buffer] + 1] -= bytes_[buffer];
    }
    std::vector<OpId> ops(ops_.size());
    for (size_t op = 0; op < ops.size(); ++op) {
        ops[op] = static_cast<OpId>(op);
        if (op > 0) live[op] += live[op - 1];
    }
    std::stable_sort(ops.begin(), ops.end(), [&](OpId a, OpId b) { return live[a] > live[b]; });
    ops.resize(std::min(count, ops.size()));
    return ops;
}

Bytes StepBounds::least_bytes(std::optional<Bytes> host_bytes) const {
    Bytes least = 0;
    for (const Op& op : ops_) {
        const Bytes away = host_bytes ? *host_bytes : std::numeric_limits<Bytes>::max();
        least = std::max(least, in_use(op.first) + std::max<Bytes>(0, untouched_persistent_bytes(op.first) - away));
    }
    if (!host_bytes || ops_.empty()) return least;
    for (const OpId op : peak_ops(1 + kMaxVisits / ops_.size()))
        least = Moment(*this, op).least_bytes(*host_bytes, least);
    return least;
}

std::vector<Seconds> StepBounds::least_seconds(const std::vector<Bytes>& budgets,
                                               std::optional<Bytes> host_bytes) const {
    std::vector<Seconds> least(budgets.size(), seconds_);
    if (ops_.empty()) return least;
    std::vector<std::vector<std::pair<Seconds, OpId>>> relaxed(budgets.size());
    for (const OpId op : peak_ops(1 + kMaxVisits / ops_.size())) {
        Moment moment(*this, op);
        for (size_t i = 0; i < budgets.size(); ++i) {
            const Seconds seconds = moment.least_seconds(budgets[i], host_bytes, least[i]);
            if (seconds > seconds_) relaxed[i].emplace_back(-seconds, op);
            least[i] = std::max(least[i], seconds);
        }
    }
    for (size_t i = 0; i < budgets.size(); ++i) {
        std::stable_sort(relaxed[i].begin(), relaxed[i].end());
        if (std::isinf(least[i])) continue;
        relaxed[i].resize(std::min(kWholeOps, relaxed[i].size()));
        int64_t steps = kWholeSteps;
        for (const auto& [seconds, op] : relaxed[i]) {
            Moment moment(*this, op);
            least[i] =
                std::max(least[i], least_seconds_of_whole_values(moment, budgets[i], host_bytes, least[i], steps));
            steps -= moment.steps();
        }
    }
    return least;
}

}  // namespace layermem::planning::bounds
