// The end of a long search: after a number of steps, or when the caller interrupts it.
//
// A limit is in step seconds, those of a slow core, which are counted in steps: the same input gives the same answer on
// every machine, idle or busy.  The clock decides only how often the caller is polled.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>

#include "planning/types.h"

namespace layermem::planning::recompute {

class Deadline {
  public:
    struct Exceeded : std::exception {};  // thrown at the limit; the best plan so far is the answer

    static constexpr double kStepsPerSecond = 2e6;  // a step is one edge inspected
    static constexpr int64_t kExactSteps = 8;       // of the exact cost of an edge

    // A limit of 0 `step_seconds` means none.  `interrupt` is called at most a hundred times a second and may throw.
    explicit Deadline(Seconds step_seconds = 0, std::function<void()> interrupt = {})
        : begin_(Clock::now()),
          next_poll_(begin_),
          limit_(step_seconds > 0 ? static_cast<int64_t>(step_seconds * kStepsPerSecond)
                                  : std::numeric_limits<int64_t>::max()),
          interrupt_(std::move(interrupt)) {}

    // Cheap enough for inner loops: the clock is read once in kCallsPerPoll calls.
    void check(int64_t steps = 1) {
        used_ += steps;
        if (++calls_ % kCallsPerPoll == 0) poll();
        if (used_ > limit_) throw Exceeded{};
    }
    // Returns the work that counts towards the limit, in step seconds.
    Seconds used() const { return static_cast<Seconds>(used_) / kStepsPerSecond; }
    Seconds elapsed() const { return std::chrono::duration<Seconds>(Clock::now() - begin_).count(); }

  private:
    using Clock = std::chrono::steady_clock;
    static constexpr unsigned kCallsPerPoll = 64;
    static constexpr auto kPollInterval = std::chrono::milliseconds(10);

    void poll() {
        const auto now = Clock::now();
        if (now < next_poll_) return;
        next_poll_ = now + kPollInterval;
        if (interrupt_) interrupt_();
    }

    Clock::time_point begin_, next_poll_;
    int64_t limit_;
    int64_t used_ = 0;
    std::function<void()> interrupt_;
    unsigned calls_ = 0;
};

}  // namespace layermem::planning::recompute
