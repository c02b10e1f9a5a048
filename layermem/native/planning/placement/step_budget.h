// The limit of a search, in counted steps: the same input gives the same offsets on a fast and on a slow machine.
// The clock is a safety net only, set to four times the seconds that the count is meant to take.
#pragma once

#include <chrono>
#include <cstdint>

#include "planning/placement/types.h"

namespace layermem::planning::placement {

class StepBudget {
  public:
    static constexpr double kStepsPerSecond = 250e6;  // of a slow core; a step is one residency inspected
    static constexpr double kSafetyFactor = 4.0;      // wall time over the time that the steps are meant to take
    static constexpr Seconds kGrace = 0.05;           // added to the deadline, for limits close to 0
    static constexpr int64_t kPollInterval = int64_t{1} << 20;  // steps

    StepBudget(Seconds time_limit, const Poll& poll)
        : poll_(poll), limit_(static_cast<int64_t>(time_limit * kStepsPerSecond)) {
        deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                       std::chrono::duration<Seconds>(time_limit * kSafetyFactor + kGrace));
    }

    // Counts `steps`; false once the limit is reached or the deadline has passed.
    bool spend(int64_t steps) {
        used_ += steps;
        if (used_ >= next_poll_) check_clock();
        return used_ < limit_ && !cut_short_;
    }

    int64_t used() const { return used_; }
    int64_t limit() const { return limit_; }
    bool exhausted() const { return used_ >= limit_ || cut_short_; }
    bool cut_short() const { return cut_short_; }  // by the deadline

  private:
    using Clock = std::chrono::steady_clock;

    void check_clock() {
        next_poll_ = used_ + kPollInterval;
        if (poll_) poll_();
        if (Clock::now() > deadline_) cut_short_ = true;
    }

    const Poll& poll_;
    int64_t limit_;
    int64_t used_ = 0;
    int64_t next_poll_ = kPollInterval;
    Clock::time_point deadline_;
    bool cut_short_ = false;
};

}  // namespace layermem::planning::placement
