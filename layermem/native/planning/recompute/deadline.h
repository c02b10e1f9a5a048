// When a long search must stop: at its time limit, or because the caller interrupts it.
#pragma once

#include <chrono>
#include <exception>
#include <functional>

#include "planning/types.h"

namespace layermem::planning::recompute {

class Deadline {
  public:
    struct Exceeded : std::exception {};  // thrown at the time limit; the best plan so far is the answer

    // `limit` 0: none.  `interrupt` is called at most a hundred times a second and may throw.
    explicit Deadline(Seconds limit = 0, std::function<void()> interrupt = {})
        : begin_(Clock::now()), next_poll_(begin_), limit_(limit), interrupt_(std::move(interrupt)) {}

    // Cheap enough for inner loops: the clock is read once in kCallsPerPoll calls.
    void check() {
        if (++calls_ % kCallsPerPoll == 0) poll();
    }
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
        if (limit_ > 0 && elapsed() > limit_) throw Exceeded{};
    }

    Clock::time_point begin_, next_poll_;
    Seconds limit_;
    std::function<void()> interrupt_;
    unsigned calls_ = 0;
};

}  // namespace layermem::planning::recompute
