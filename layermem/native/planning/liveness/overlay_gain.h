// The bytes that overlays save at one op.
#pragma once

#include <algorithm>
#include <vector>

#include "planning/step_graph.h"

namespace layermem::planning::liveness {

// Grants overlays in the order of add(); an item takes part in at most one of them, on either side.
class OverlayGain {
  public:
    explicit OverlayGain(const StepGraph& graph) : graph_(graph) {}

    // `written` takes the bytes of `read`, if it fits in them.
    void add(Item written, Item read) {
        if (graph_.item_bytes(written) > graph_.item_bytes(read)) return;
        for (int i = 0; i < std::min(count_, kFirst); ++i)
            if (first_[i] == written || first_[i] == read) return;
        for (Item item : more_)
            if (item == written || item == read) return;
        grant(written);
        grant(read);
        bytes_ += graph_.item_bytes(written);
    }
    Bytes bytes() const { return bytes_; }

  private:
    static constexpr int kFirst = 8;

    void grant(Item item) {
        if (count_ < kFirst)
            first_[count_] = item;
        else
            more_.push_back(item);
        ++count_;
    }

    const StepGraph& graph_;
    Item first_[kFirst];  // the items of granted overlays: nearly all ops have few, which need no allocation
    std::vector<Item> more_;
    int count_ = 0;
    Bytes bytes_ = 0;
};

}  // namespace layermem::planning::liveness
