// An order of ops in which recomputations are inserted and removed, with its exact peak of live bytes after each edit.
//
//     slots    . . f1 . . . f2 . r1 . b2 . . . b1 .      an op per slot, most are empty; r1 is a recomputation
//     x1           |--------|    |----------|            residencies, from a write to the last read before the next one
//
// The bytes are those of LayoutGraph::peak_live_bytes() for a plan without copies: overlays and workspace included.
// An edit takes O(log slots) for each buffer that its op touches.
//
// source  Yoshimura et al., "Fast and memory-efficient rematerialization by simulated annealing", 2023, keeps the bytes
//         of a sequence in a segment tree with additions to ranges and their maximum
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "planning/liveness/layout.h"
#include "planning/nested/live_tree.h"

namespace layermem::planning::nested {

using liveness::BufferId;
using liveness::LayoutGraph;
using liveness::OpId;

class EditableOrder {
  public:
    // Throws std::invalid_argument if LayoutGraph::lay_out() does.
    EditableOrder(const LayoutGraph& graph, const std::vector<OpId>& order, int overlays);

    Bytes peak_bytes() const { return tree_.max(); }
    Seconds recompute_seconds() const { return recompute_seconds_; }
    std::vector<OpId> order() const;

    // ---- slots; those of ops are ascending in the order
    Slot slots() const { return slots_; }
    Slot peak_slot() const { return tree_.argmax(); }
    const std::vector<Slot>& recomputations() const { return recomputations_; }
    const std::vector<Slot>& occupied() const { return occupied_; }                   // in no particular order
    Slot previous(Slot slot) const { return previous_[slot]; }                        // occupied, -1 before the first
    OpId op(Slot slot) const { return ops_[slot]; }                                   // as in the order, -1 if empty
    const liveness::Op& form(Slot slot) const { return graph_.ops()[forms_[slot]]; }  // what runs there
    bool is_recomputation(Slot slot) const { return forms_[slot] >= 0 && forms_[slot] != ops_[slot]; }

    // ---- buffers
    // Whether a value written before the slot is read at the slot or later, so that a read at the slot takes no bytes.
    bool is_resident(BufferId buffer, Slot slot) const;
    // Return the last use before the slot, and the first one at or after it; -1 if there is none.
    Slot use_before(BufferId buffer, Slot slot) const;
    Slot use_from(BufferId buffer, Slot slot) const;
    // Returns the write that a read at the slot reads.
    Slot write_before(BufferId buffer, Slot slot) const;
    // Returns whether the results of the recomputation in the slot fit from the last use before it on: a quick test,
    // which counts buffers as free that are read there for the last time.
    bool may_fit_without(Slot slot, Bytes budget_bytes) const;
    // Returns whether nothing reads the results of the op in the slot.
    bool is_needless(Slot slot) const;

    // Returns the last slot that has to stay before the op in the slot, -1 if there is none, and the first one that has
    // to stay after it, the number of all slots if there is none: neither may write what the op touches, nor read what
    // it writes.
    std::pair<Slot, Slot> bounds(Slot slot) const;
    // Returns the first op at or after a slot; the number of all slots if there is none.
    Slot occupied_from(Slot slot) const;

    // ---- edits
    // Inserts the recomputation of an earlier op; false if no slot between `slot` and the op before it is empty.
    bool insert_before(Slot slot, OpId op) { return insert_before(slot, op, graph_.ops()[op].recompute); }
    // Removes a recomputation: readers of its outputs then read those of the run before it.
    void remove(Slot slot);
    // Moves an op right before another one, which lies within its bounds; false if no slot is empty there.
    bool move_before(Slot slot, Slot next);
    // The same functions by index in the order, after checks: std::invalid_argument, also without an empty slot.
    void insert_at(liveness::Position position, OpId op);
    void remove_at(liveness::Position position);
    void move_at(liveness::Position position, liveness::Position next);
    void begin_edit() { edits_.clear(); }
    size_t mark() const { return edits_.size(); }
    void undo_edit(size_t mark = 0);  // back to begin_edit(), or to a mark since
    void spread();                    // numbers the slots anew, with empty ones before every op; edits so far stay

  private:
    struct Use {
        Slot slot;
        bool reads, writes;
    };
    struct Edit {
        Slot slot, previous, next;
        OpId op, form;
        bool inserted;
    };
    struct Overlay {  // one that the mask allows
        BufferId out, over;
        bool persistent;
    };
    struct Overlaid {
        Bytes bytes = 0, permanent_bytes = 0;
    };
    enum class End { kFirst, kLast };  // of a residency

    Slot slot_at(liveness::Position position) const;
    bool insert_before(Slot slot, OpId op, OpId form);
    void build(const std::vector<OpId>& order);
    void place(Slot slot, OpId op, OpId form, Slot previous, Slot next);
    void list(Slot slot, OpId op, OpId form);
    void clear(Slot slot);
    template <class Visit>
    void for_each_use(OpId form, Slot slot, Visit visit) const;
    void change_uses(BufferId buffer, const Use& use, bool insert);
    size_t find(BufferId buffer, Slot slot) const;
    bool begins(BufferId buffer, size_t use) const;
    bool begins_at(BufferId buffer, Slot slot) const;
    bool ends_at(BufferId buffer, Slot slot) const;
    void touch(BufferId buffer, Slot slot, End end);
    Overlaid overlaid_at(Slot slot);
    void update_overlays();
    void set_overlaid(Slot slot, const Overlaid& overlaid);

    const LayoutGraph& graph_;
    std::vector<Overlay> overlays_;       // of all ops
    std::vector<int32_t> first_overlay_;  // per op, and one beyond
    Slot slots_ = 0;
    LiveTree tree_{1};
    Seconds recompute_seconds_ = 0;
    std::vector<OpId> ops_, forms_;                         // per slot
    std::vector<Slot> previous_, next_;                     // per slot that is occupied; next_ is slots_ after the last
    std::vector<Slot> occupied_, recomputations_;           // lists of slots
    std::vector<int32_t> in_occupied_, in_recomputations_;  // per slot: index in these lists
    std::vector<std::vector<Use>> uses_;                    // per buffer, ascending
    std::vector<Overlaid> overlaid_;                        // per slot
    std::vector<Slot> touched_;                             // slots whose overlays may have changed
    std::vector<BufferId> granted_;                         // workspace
    std::vector<Edit> edits_;
};

}  // namespace layermem::planning::nested
