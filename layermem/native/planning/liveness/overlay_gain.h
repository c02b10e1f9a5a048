// The bytes that overlays save at one op.
#pragma once

#include <vector>

#include "planning/step_graph.h"

namespace layermem::planning::liveness {

// Overlays are granted in the order of add(), and an item takes part in one of them only, on either side.
class OverlayGain {
  public:
    explicit OverlayGain(const StepGraph& graph) : graph_(graph) {}

    // `written` takes the bytes of `read`, if it fits in them.
    void add(Item written, Item read) {
        if (graph_.item_bytes(written) > graph_.item_bytes(read)) return;
        for (Item item : granted_)
            if (item == written || item == read) return;
        granted_.push_back(written);
        granted_.push_back(read);
        bytes_ += graph_.item_bytes(written);
    }
    Bytes bytes() const { return bytes_; }

  private:
    const StepGraph& graph_;
    std::vector<Item> granted_;
    Bytes bytes_ = 0;
};

}  // namespace layermem::planning::liveness
