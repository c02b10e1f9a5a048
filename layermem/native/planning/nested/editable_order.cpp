// Edits of an order: uses per buffer, their residencies, and the bytes of residencies in a tree over slots.
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

EditableOrder::EditableOrder(const LayoutGraph& graph, const std::vector<OpId>& order, int overlays) : graph_(graph) {
    graph.lay_out({order, {}, overlays, 1.0});  // throws if the order does not run
    first_overlay_.push_back(0);
    for (const liveness::Op& op : graph.ops()) {
        for (const liveness::OverlayRule& rule : op.overlays) {
            const bool persistent = graph.buffers()[rule.out].persistent;
            if ((rule.kind & overlays) && persistent == graph.buffers()[rule.over].persistent)
                overlays_.push_back({rule.out, rule.over, persistent});
        }
        first_overlay_.push_back(static_cast<int32_t>(overlays_.size()));
    }
    build(order);
}

void EditableOrder::build(const std::vector<OpId>& order) {
    const auto count = static_cast<Slot>(order.size());
    slots_ = (count + 1) * kSpacing;
    ops_.assign(slots_, -1);
    forms_.assign(slots_, -1);
    previous_.assign(slots_, -1);
    next_.assign(slots_, slots_);
    in_occupied_.assign(slots_, -1);
    in_recomputations_.assign(slots_, -1);
    overlaid_.assign(slots_, {});
    occupied_.clear();
    recomputations_.clear();
    uses_.resize(graph_.buffers().size());
    for (auto& uses : uses_) uses.clear();
    recompute_seconds_ = 0;
    std::vector<char> has_run(graph_.ops().size(), 0);
    for (Slot i = 0; i < count; ++i) {
        const Slot slot = (i + 1) * kSpacing - 1;
        const OpId form = has_run[order[i]] ? graph_.ops()[order[i]].recompute : order[i];
        has_run[order[i]] = 1;
        previous_[slot] = i ? slot - kSpacing : -1;
        if (i) next_[slot - kSpacing] = slot;
        list(slot, order[i], form);
        for_each_use(form, slot, [&](BufferId b, const Use& use) { uses_[b].push_back(use); });
    }
    // First the difference of each slot to the one before it, then its bytes.
    std::vector<Bytes> bytes(slots_ + 1, 0);
    Bytes persistent_bytes = 0;
    for (BufferId b = 0; b < static_cast<BufferId>(graph_.buffers().size()); ++b) {
        const auto& uses = uses_[b];
        if (graph_.buffers()[b].persistent && !uses.empty()) persistent_bytes += graph_.buffers()[b].bytes;
        if (graph_.buffers()[b].persistent) continue;
        for (size_t i = 0; i < uses.size(); ++i) {
            if (begins(b, i)) bytes[uses[i].slot] += graph_.buffers()[b].bytes;
            if (i + 1 == uses.size() || begins(b, i + 1)) bytes[uses[i].slot + 1] -= graph_.buffers()[b].bytes;
        }
    }
    for (Slot slot = 1; slot < slots_; ++slot) bytes[slot] += bytes[slot - 1];
    for (const Slot slot : occupied_) {
        overlaid_[slot] = overlaid_at(slot);
        bytes[slot] += graph_.ops()[forms_[slot]].workspace_bytes - overlaid_[slot].bytes;
        persistent_bytes -= overlaid_[slot].permanent_bytes;
    }
    bytes.pop_back();
    tree_ = LiveTree(bytes);
    tree_.add_to_all(persistent_bytes);
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

// Returns the index of the first use at or after the slot.
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

std::pair<Slot, Slot> EditableOrder::bounds(Slot slot) const {
    Slot first = -1, last = slots_;
    for_each_use(forms_[slot], slot, [&](BufferId b, const Use& use) {
        const auto& uses = uses_[b];
        size_t before = find(b, slot), after = before;
        while (before > 0 && !use.writes && !uses[before - 1].writes) --before;
        if (before > 0) first = std::max(first, uses[before - 1].slot);
        while (after < uses.size() && (uses[after].slot == slot || (!use.writes && !uses[after].writes))) ++after;
        if (after < uses.size()) last = std::min(last, uses[after].slot);
    });
    return {first, last};
}

Slot EditableOrder::occupied_from(Slot slot) const {
    while (slot < slots_ && ops_[slot] < 0) ++slot;
    return slot;
}

// ---- edits --------------------------------------------------------------------------------------------------------

bool EditableOrder::insert_before(Slot next, OpId op, OpId form) {
    const Slot previous = previous_[next];
    if (next - previous < 2) return false;
    // More slots stay free after the new op than before it: the next insertion before the same op goes there.
    const Slot slot = previous + 1 + (next - previous - 2) / 4;
    place(slot, op, form, previous, next);
    edits_.push_back({slot, previous, next, op, form, true});
    return true;
}

void EditableOrder::remove(Slot slot) {
    edits_.push_back({slot, previous_[slot], next_[slot], ops_[slot], forms_[slot], false});
    clear(slot);
}

bool EditableOrder::move_before(Slot slot, Slot next) {
    const OpId op = ops_[slot], form = forms_[slot];
    remove(slot);
    return insert_before(next, op, form);
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
    if (!insert_before(slot, op)) throw std::invalid_argument("no empty slot is left here");
}

void EditableOrder::remove_at(liveness::Position position) {
    const Slot slot = slot_at(position);
    if (!is_recomputation(slot)) throw std::invalid_argument("only a recomputation can be removed");
    remove(slot);
}

void EditableOrder::move_at(liveness::Position position, liveness::Position next) {
    const Slot slot = slot_at(position), before = slot_at(next);
    const auto [first, last] = bounds(slot);
    if (before <= first || before > last)
        throw std::invalid_argument("an op that has to stay before or after this one lies between");
    if (before != slot && !move_before(slot, before)) throw std::invalid_argument("no empty slot is left here");
}

void EditableOrder::undo_edit(size_t mark) {
    for (; edits_.size() > mark; edits_.pop_back()) {
        const Edit& edit = edits_.back();
        if (edit.inserted)
            clear(edit.slot);
        else
            place(edit.slot, edit.op, edit.form, edit.previous, edit.next);
    }
}

template <class Visit>
void EditableOrder::for_each_use(OpId form, Slot slot, Visit visit) const {
    const liveness::Op& op = graph_.ops()[form];
    for (BufferId b : op.reads) visit(b, Use{slot, true, false});
    for (BufferId b : op.updates) visit(b, Use{slot, true, true});
    for (BufferId b : op.writes) visit(b, Use{slot, false, true});
}

// Adds an op, without its effects on buffers.
void EditableOrder::list(Slot slot, OpId op, OpId form) {
    ops_[slot] = op;
    forms_[slot] = form;
    add_slot(occupied_, in_occupied_, slot);
    if (form != op) {
        add_slot(recomputations_, in_recomputations_, slot);
        recompute_seconds_ += graph_.ops()[form].seconds;
    }
}

// Between two neighbours, `next` is slots_ after the last.
void EditableOrder::place(Slot slot, OpId op, OpId form, Slot previous, Slot next) {
    previous_[slot] = previous;
    next_[slot] = next;
    if (previous >= 0) next_[previous] = slot;
    if (next < slots_) previous_[next] = slot;
    list(slot, op, form);
    tree_.add(slot, graph_.ops()[form].workspace_bytes);
    touched_.assign(1, slot);
    for_each_use(form, slot, [&](BufferId b, const Use& use) { change_uses(b, use, true); });
    update_overlays();
}

void EditableOrder::clear(Slot slot) {
    const OpId form = forms_[slot];
    touched_.clear();
    set_overlaid(slot, {});
    for_each_use(form, slot, [&](BufferId b, const Use& use) { change_uses(b, use, false); });
    tree_.add(slot, -graph_.ops()[form].workspace_bytes);
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

// Inserts or erases a use, and updates the bytes of residencies that it begins, ends, joins or splits.
void EditableOrder::change_uses(BufferId buffer, const Use& use, bool insert) {
    auto& uses = uses_[buffer];
    const Slot slot = use.slot;
    size_t at = find(buffer, slot);
    if (insert)
        while (at < uses.size() && uses[at].slot == slot) ++at;
    else
        while (uses[at].reads != use.reads || uses[at].writes != use.writes) ++at;
    const size_t behind = insert ? at : at + 1;
    const bool has_previous = at > 0, has_next = behind < uses.size();
    const Slot previous = has_previous ? uses[at - 1].slot : -1, next = has_next ? uses[behind].slot : -1;
    const bool is_read_behind = has_next && uses[behind].reads;
    if (insert)
        uses.insert(uses.begin() + static_cast<std::ptrdiff_t>(at), use);
    else
        uses.erase(uses.begin() + static_cast<std::ptrdiff_t>(at));

    if (graph_.buffers()[buffer].persistent) {  // one residency
        if (!has_previous && has_next) touch(buffer, next, End::kFirst);
        if (has_previous && !has_next) touch(buffer, previous, End::kLast);
        return;
    }
    const Bytes bytes = insert ? graph_.buffers()[buffer].bytes : -graph_.buffers()[buffer].bytes;
    if (has_previous && use.reads) {
        if (is_read_behind) return;
        tree_.add(previous + 1, slot + 1, bytes);  // the last read of what lies there
        touch(buffer, previous, End::kLast);
    } else if (!is_read_behind) {
        tree_.add(slot, bytes);
    } else if (!has_previous) {
        tree_.add(slot, next, bytes);
        touch(buffer, next, End::kFirst);
    } else if (previous == slot) {  // the residencies read and written here differ
        tree_.add(slot, bytes);
        touch(buffer, previous, End::kLast);
    } else {
        tree_.add(previous + 1, slot, -bytes);
        touch(buffer, previous, End::kLast);
    }
}

// ---- residencies --------------------------------------------------------------------------------------------------

bool EditableOrder::begins(BufferId buffer, size_t use) const {
    return use == 0 || (!uses_[buffer][use].reads && !graph_.buffers()[buffer].persistent);
}

bool EditableOrder::begins_at(BufferId buffer, Slot slot) const {
    const auto& uses = uses_[buffer];
    for (size_t i = find(buffer, slot); i < uses.size() && uses[i].slot == slot; ++i)
        if (begins(buffer, i)) return true;
    return false;
}

bool EditableOrder::ends_at(BufferId buffer, Slot slot) const {
    const auto& uses = uses_[buffer];
    for (size_t i = find(buffer, slot); i < uses.size() && uses[i].slot == slot; ++i)
        if (i + 1 == uses.size() || begins(buffer, i + 1)) return true;
    return false;
}

// ---- overlays -----------------------------------------------------------------------------------------------------

// Notes that a residency of the buffer begins or ends at the slot, or no longer does.
void EditableOrder::touch(BufferId buffer, Slot slot, End end) {
    const OpId form = forms_[slot];
    for (int32_t i = first_overlay_[form]; i < first_overlay_[form + 1]; ++i)
        if (buffer == (end == End::kFirst ? overlays_[i].out : overlays_[i].over)) {
            touched_.push_back(slot);
            return;
        }
}

void EditableOrder::update_overlays() {
    for (const Slot slot : touched_)
        if (forms_[slot] >= 0) set_overlaid(slot, overlaid_at(slot));
}

// Like LayoutGraph::live_profile(): each buffer takes part once per op, rules in their order.
EditableOrder::Overlaid EditableOrder::overlaid_at(Slot slot) {
    const OpId form = forms_[slot];
    Overlaid overlaid;
    granted_.clear();
    for (int32_t i = first_overlay_[form]; i < first_overlay_[form + 1]; ++i) {
        const Overlay& overlay = overlays_[i];
        auto is_party = [&](BufferId b) { return b == overlay.out || b == overlay.over; };
        if (!begins_at(overlay.out, slot) || !ends_at(overlay.over, slot) ||
            std::any_of(granted_.begin(), granted_.end(), is_party))
            continue;
        granted_.insert(granted_.end(), {overlay.out, overlay.over});
        (overlay.persistent ? overlaid.permanent_bytes : overlaid.bytes) += graph_.buffers()[overlay.out].bytes;
    }
    return overlaid;
}

void EditableOrder::set_overlaid(Slot slot, const Overlaid& overlaid) {
    tree_.add(slot, overlaid_[slot].bytes - overlaid.bytes);
    if (overlaid_[slot].permanent_bytes != overlaid.permanent_bytes)
        tree_.add_to_all(overlaid_[slot].permanent_bytes - overlaid.permanent_bytes);
    overlaid_[slot] = overlaid;
}

}  // namespace layermem::planning::nested
