// The patience of a search: counted steps, so that the same input gives the same plan on a fast and on a slow machine.
// The clock is a safety net only, four times as wide as the count is meant to take.
#pragma once

#include <chrono>
#include <cstdint>

#include "planning/placement/place.h"

namespace layermem::placing {

class Steps {
public:
    static constexpr double kPerSecond = 250e6;  // elementary steps (one block looked at) that a slow core makes
    static constexpr double kSafety = 4.0;
    static constexpr int64_t kPollEvery = int64_t{1} << 20;

    Steps(double time_limit, const Poll& poll) : poll_(poll), limit_(static_cast<int64_t>(time_limit * kPerSecond)) {
        deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                       std::chrono::duration<double>(time_limit * kSafety + 0.05));
    }

    // Takes `count` steps; false once they are used up or the safety net has caught us.
    bool take(int64_t count) {
        used_ += count;
        if (used_ >= next_poll_) look_up();
        return used_ < limit_ && !cut_short_;
    }

    int64_t used() const { return used_; }
    int64_t limit() const { return limit_; }
    bool over() const { return used_ >= limit_ || cut_short_; }
    bool cut_short() const { return cut_short_; }

private:
    using Clock = std::chrono::steady_clock;

    void look_up() {
        next_poll_ = used_ + kPollEvery;
        if (poll_) poll_();
        if (Clock::now() > deadline_) cut_short_ = true;
    }

    const Poll& poll_;
    int64_t limit_, used_ = 0, next_poll_ = kPollEvery;
    Clock::time_point deadline_;
    bool cut_short_ = false;
};

}  // namespace layermem::placing
