// The limit of a search in step seconds, which are counted steps: the same input gives the same offsets on a fast and on
// a slow machine, idle or busy.
#pragma once

#include <cstdint>

#include "planning/placement/types.h"

namespace layermem::planning::placement {

class StepBudget {
  public:
    static constexpr double kStepsPerSecond = 250e6;            // of a slow core; a step is one residency inspected
    static constexpr int64_t kPollInterval = int64_t{1} << 20;  // steps

    StepBudget(Seconds step_seconds, const Poll& poll)
        : poll_(poll), limit_(static_cast<int64_t>(step_seconds * kStepsPerSecond)) {}

    // Counts `steps`; false once the limit is reached.
    bool spend(int64_t steps) {
        used_ += steps;
        if (used_ >= next_poll_) poll();
        return !exhausted();
    }

    int64_t used() const { return used_; }
    int64_t limit() const { return limit_; }
    bool exhausted() const { return used_ >= limit_; }

  private:
    void poll() {
        next_poll_ = used_ + kPollInterval;
        if (poll_) poll_();
    }

    const Poll& poll_;
    int64_t limit_;
    int64_t used_ = 0;
    int64_t next_poll_ = kPollInterval;
};

}  // namespace layermem::planning::placement
