// Edits of an order: uses per buffer, their residencies, and the bytes of those in a tree over slots.
#include "planning/nested/editable_order.h"

#include <algorithm>
#include <stdexcept>

namespace layermem::planning::nested {
namespace {

constexpr Slot kSpacing = 16;  // slots per op when they are numbered anew

void add_slot(std::vector<Slot>& list, std::vector<int32_t>& index, Slot slot) {
    index[slot] = static_cast<int32_t>(list.size());
    list.push_back(slot);
}

void remove_slot(std::vector<Slot>& list, std::vector<int32_t>& index, Slot slot) {
    list[index[slot]] = list.back();
    index[list.back()] = index[slot];
    list.pop_back();
}

}  // namespace

EditableOrder::EditableOrder(const LayoutGraph& graph, const std::vector<OpId>& order, int overlays)
    : graph_(graph), overlays_of_(graph.ops().size()) {
    graph.lay_out({order, {}, overlays, 1.0});  // throws if the order does not run
    for (size_t op = 0; op < graph.ops().size(); ++op)
        for (const liveness::OverlayRule& rule : graph.ops()[op].overlays) {
            const bool persistent = graph.buffers()[rule.out].persistent;
            if ((rule.kind & overlays) && persistent == graph.buffers()[rule.over].persistent)
                overlays_of_[op].push_back({rule.out, rule.over, persistent});
        }
    build(order);
}

void EditableOrder::build(const std::vector<OpId>& order) {
    const auto count = static_cast<Slot>(order.size());
    slots_ = (count + 1) * kSpacing;
    tree_ = LiveTree(slots_);
    ops_.assign(slots_, -1);
    forms_.assign(slots_, -1);
    previous_.assign(slots_, -1);
    next_.assign(slots_, slots_);
    in_occupied_.assign(slots_, -1);
    in_recomputations_.assign(slots_, -1);
    overlaid_.assign(slots_, 0);
    permanently_overlaid_.assign(slots_, 0);
    occupied_.clear();
    recomputations_.clear();
    uses_.assign(graph_.buffers().size(), {});
    recompute_seconds_ = 0;
    std::vector<char> has_run(graph_.ops().size(), 0);
    for (Slot i = 0; i < count; ++i) {
        const Slot slot = (i + 1) * kSpacing - 1;
        const OpId form = has_run[order[i]] ? graph_.ops()[order[i]].recompute : order[i];
        has_run[order[i]] = 1;
        previous_[slot] = i ? slot - kSpacing : -1;
        if (i) next_[slot - kSpacing] = slot;
        place(slot, order[i], form);
    }
    for (BufferId b = 0; b < static_cast<BufferId>(graph_.buffers().size()); ++b)
        if (graph_.buffers()[b].persistent && !uses_[b].empty()) tree_.add(0, slots_, graph_.buffers()[b].bytes);
}

void EditableOrder::spread() {
    edits_.clear();
    build(order());
}

std::vector<OpId> EditableOrder::order() const {
    std::vector<OpId> order;
    for (OpId op : ops_)
        if (op >= 0) order.push_back(op);
    return order;
}

// ---- buffers ------------------------------------------------------------------------------------------------------

// The index of the first use at or after the slot.
size_t EditableOrder::find(BufferId buffer, Slot slot) const {
    const auto& uses = uses_[buffer];
    return std::lower_bound(uses.begin(), uses.end(), slot, [](const Use& u, Slot s) { return u.slot < s; }) -
           uses.begin();
}

bool EditableOrder::is_resident(BufferId buffer, Slot slot) const {
    const size_t i = find(buffer, slot);
    return i > 0 && i < uses_[buffer].size() && uses_[buffer][i].reads;
}

Slot EditableOrder::use_before(BufferId buffer, Slot slot) const {
    const size_t i = find(buffer, slot);
    return i ? uses_[buffer][i - 1].slot : -1;
}

Slot EditableOrder::use_from(BufferId buffer, Slot slot) const {
    const size_t i = find(buffer, slot);
    return i < uses_[buffer].size() ? uses_[buffer][i].slot : -1;
}

Slot EditableOrder::write_before(BufferId buffer, Slot slot) const {
    for (size_t i = find(buffer, slot); i-- > 0;)
        if (!uses_[buffer][i].reads) return uses_[buffer][i].slot;
    return -1;
}

bool EditableOrder::is_needless(Slot slot) const {
    for (BufferId b : form(slot).writes) {
        const auto& uses = uses_[b];
        size_t i = find(b, slot);
        while (i < uses.size() && uses[i].slot == slot) ++i;
        if (i < uses.size() && uses[i].reads) return false;
    }
    return true;
}

bool EditableOrder::may_fit_without(Slot slot, Bytes budget_bytes) const {
    for (BufferId b : form(slot).reads)
        if (ends_at(b, slot)) budget_bytes += graph_.buffers()[b].bytes;
    for (BufferId b : form(slot).writes) {
        const Slot before = use_before(b, slot);
        if (before >= 0 && before + 1 < slot && tree_.max(before + 1, slot) + graph_.buffers()[b].bytes > budget_bytes)
            return false;
    }
    return true;
}

// ---- edits --------------------------------------------------------------------------------------------------------

bool EditableOrder::insert_before(Slot next, OpId op) {
    const Slot previous = previous_[next];
    if (next - previous < 2) return false;
    // More slots are left free after it than before it: what is inserted next, before the same op, stands there.
    const Slot slot = previous + 1 + (next - previous - 2) / 4;
    place(slot, op, graph_.ops()[op].recompute);
    edits_.push_back({slot, op, true});
    return true;
}

void EditableOrder::remove(Slot slot) {
    edits_.push_back({slot, ops_[slot], false});
    clear(slot);
}

Slot EditableOrder::slot_at(liveness::Position position) const {
    Slot slot = 0;
    for (liveness::Position p = position; slot < slots_; ++slot)
        if (ops_[slot] >= 0 && p-- == 0) break;
    if (position < 0 || slot >= slots_) throw std::invalid_argument("there is no such position in the order");
    return slot;
}

void EditableOrder::insert_at(liveness::Position position, OpId op) {
    const Slot slot = slot_at(position);
    const bool has_run = std::any_of(ops_.begin(), ops_.begin() + slot, [&](OpId each) { return each == op; });
    if (!has_run || graph_.ops()[op].recompute < 0)
        throw std::invalid_argument("an op that has not run, or cannot be repeated, has no recomputation here");
    if (!insert_before(slot, op)) throw std::invalid_argument("no empty slot is left here; begin an edit");
}

void EditableOrder::remove_at(liveness::Position position) {
    const Slot slot = slot_at(position);
    if (!is_recomputation(slot)) throw std::invalid_argument("only a recomputation can be removed");
    remove(slot);
}

void EditableOrder::undo_edit(size_t mark) {
    for (; edits_.size() > mark; edits_.pop_back()) {
        const Edit& edit = edits_.back();
        if (edit.inserted)
            clear(edit.slot);
        else
            place(edit.slot, edit.op, graph_.ops()[edit.op].recompute);
    }
}

template <class Visit>
void EditableOrder::for_each_use(OpId form, Slot slot, Visit visit) const {
    const liveness::Op& op = graph_.ops()[form];
    for (BufferId b : op.reads) visit(b, Use{slot, true, false});
    for (BufferId b : op.updates) visit(b, Use{slot, true, true});
    for (BufferId b : op.writes) visit(b, Use{slot, false, true});
}

void EditableOrder::place(Slot slot, OpId op, OpId form) {
    // While all are placed in turn, nothing comes after the last; its neighbours are set by build().
    if (previous_[slot] < 0 && next_[slot] == slots_ && !occupied_.empty()) {
        Slot next = slot + 1;
        while (next < slots_ && ops_[next] < 0) ++next;
        const Slot previous = next < slots_ ? previous_[next] : *std::max_element(occupied_.begin(), occupied_.end());
        previous_[slot] = previous;
        next_[slot] = next;
        if (previous >= 0) next_[previous] = slot;
        if (next < slots_) previous_[next] = slot;
    }
    ops_[slot] = op;
    forms_[slot] = form;
    add_slot(occupied_, in_occupied_, slot);
    if (form != op) {
        add_slot(recomputations_, in_recomputations_, slot);
        recompute_seconds_ += graph_.ops()[form].seconds;
    }
    tree_.add(slot, slot + 1, graph_.ops()[form].workspace_bytes);
    touched_.assign(1, slot);
    for_each_use(form, slot, [&](BufferId b, const Use& use) { change_uses(b, use, true); });
    update_overlays();
}

void EditableOrder::clear(Slot slot) {
    const OpId form = forms_[slot];
    touched_.clear();
    set_overlays(slot, 0, 0);
    for_each_use(form, slot, [&](BufferId b, const Use& use) { change_uses(b, use, false); });
    tree_.add(slot, slot + 1, -graph_.ops()[form].workspace_bytes);
    remove_slot(occupied_, in_occupied_, slot);
    if (form != ops_[slot]) {
        remove_slot(recomputations_, in_recomputations_, slot);
        recompute_seconds_ -= graph_.ops()[form].seconds;
    }
    ops_[slot] = forms_[slot] = -1;
    if (previous_[slot] >= 0) next_[previous_[slot]] = next_[slot];
    if (next_[slot] < slots_) previous_[next_[slot]] = previous_[slot];
    previous_[slot] = -1;
    next_[slot] = slots_;
    update_overlays();
}

// Only the residency of the use before the changed one can change, and the one that the change makes or ends.
void EditableOrder::change_uses(BufferId buffer, const Use& use, bool insert) {
    auto& uses = uses_[buffer];
    size_t at = find(buffer, use.slot);
    if (insert)
        while (at < uses.size() && uses[at].slot == use.slot) ++at;
    else
        while (uses[at].reads != use.reads || uses[at].writes != use.writes) ++at;
    size_t begin = at ? at - 1 : 0;
    while (begin > 0 && uses[begin].reads) --begin;
    size_t end = insert ? at : at + 1;
    while (end < uses.size() && uses[end].reads) ++end;
    const bool persistent = graph_.buffers()[buffer].persistent;
    if (persistent) begin = 0, end = uses.size();
    find_intervals(buffer, begin, end, before_);
    if (insert) {
        uses.insert(uses.begin() + static_cast<std::ptrdiff_t>(at), use);
        ++end;
    } else {
        uses.erase(uses.begin() + static_cast<std::ptrdiff_t>(at));
        --end;
    }
    find_intervals(buffer, begin, end, after_);
    touch_difference();
    if (!persistent) add_difference(graph_.buffers()[buffer].bytes);
}

// Slots where residencies begin or end in one of before_ and after_ alone.
void EditableOrder::touch_difference() {
    auto touch_missing = [&](const auto& list, const auto& others, Slot Interval::* end) {
        for (const Interval& each : list) {
            auto is_same = [&](const Interval& other) { return other.*end == each.*end; };
            if (!overlays_of_[forms_[each.*end]].empty() && std::none_of(others.begin(), others.end(), is_same))
                touched_.push_back(each.*end);
        }
    };
    for (auto end : {&Interval::first, &Interval::last}) {
        touch_missing(before_, after_, end);
        touch_missing(after_, before_, end);
    }
}

// The bytes of after_ less those of before_, each range of slots at once.
void EditableOrder::add_difference(Bytes bytes) {
    steps_.clear();
    for (const auto* list : {&before_, &after_})
        for (const Interval& each : *list) {
            const int sign = list == &before_ ? -1 : 1;
            steps_.push_back({each.first, sign});
            steps_.push_back({each.last + 1, -sign});
        }
    std::sort(steps_.begin(), steps_.end());
    int sum = 0;
    for (size_t i = 0; i + 1 < steps_.size(); ++i) {
        sum += steps_[i].second;
        if (sum) tree_.add(steps_[i].first, steps_[i + 1].first, sum * bytes);
    }
}

// The residencies that the uses [begin, end) make.
void EditableOrder::find_intervals(BufferId buffer, size_t begin, size_t end, std::vector<Interval>& intervals) const {
    const auto& uses = uses_[buffer];
    intervals.clear();
    for (size_t i = begin; i < end; ++i) {
        const bool begins = intervals.empty() || (!uses[i].reads && !graph_.buffers()[buffer].persistent);
        if (begins) intervals.push_back({uses[i].slot, uses[i].slot});
        intervals.back().last = uses[i].slot;
    }
}

// ---- overlays -----------------------------------------------------------------------------------------------------

bool EditableOrder::begins_at(BufferId buffer, Slot slot) const {
    const auto& uses = uses_[buffer];
    for (size_t i = find(buffer, slot); i < uses.size() && uses[i].slot == slot; ++i)
        if (i == 0 || (!uses[i].reads && !graph_.buffers()[buffer].persistent)) return true;
    return false;
}

bool EditableOrder::ends_at(BufferId buffer, Slot slot) const {
    const auto& uses = uses_[buffer];
    for (size_t i = find(buffer, slot); i < uses.size() && uses[i].slot == slot; ++i)
        if (i + 1 == uses.size() || (!uses[i + 1].reads && !graph_.buffers()[buffer].persistent)) return true;
    return false;
}

// As LayoutGraph::live_profile(): each buffer takes part once per op, rules in their order.
void EditableOrder::update_overlays() {
    for (Slot slot : touched_) {
        if (forms_[slot] < 0) continue;
        granted_.clear();
        Bytes bytes = 0, permanent_bytes = 0;
        for (const Overlay& overlay : overlays_of_[forms_[slot]]) {
            auto is_party = [&](BufferId b) { return b == overlay.out || b == overlay.over; };
            if (!begins_at(overlay.out, slot) || !ends_at(overlay.over, slot) ||
                std::any_of(granted_.begin(), granted_.end(), is_party))
                continue;
            granted_.insert(granted_.end(), {overlay.out, overlay.over});
            (overlay.persistent ? permanent_bytes : bytes) += graph_.buffers()[overlay.out].bytes;
        }
        set_overlays(slot, bytes, permanent_bytes);
    }
}

void EditableOrder::set_overlays(Slot slot, Bytes bytes, Bytes permanent_bytes) {
    tree_.add(slot, slot + 1, overlaid_[slot] - bytes);
    tree_.add(0, slots_, permanently_overlaid_[slot] - permanent_bytes);
    overlaid_[slot] = bytes;
    permanently_overlaid_[slot] = permanent_bytes;
}

}  // namespace layermem::planning::nested
