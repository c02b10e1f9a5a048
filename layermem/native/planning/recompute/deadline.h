// When a long search should stop: at its deadline, or because somebody wants to interrupt it.
#pragma once
#include <chrono>
#include <functional>

namespace layermem::planning {

class Watch {
  public:
    struct TimeUp {};  // thrown at the deadline; the best plan so far is the answer

    // `seconds` 0: no limit.  `interrupt` is called a hundred times a second and may throw.
    explicit Watch(double seconds = 0, std::function<void()> interrupt = {})
        : begin_(Clock::now()), next_look_(begin_), limit_(seconds), interrupt_(std::move(interrupt)) {}

    void tick() {
        if (++count_ % 64 == 0) look();
    }
    double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  private:
    using Clock = std::chrono::steady_clock;

    void look() {
        const auto now = Clock::now();
        if (now < next_look_) return;
        next_look_ = now + std::chrono::milliseconds(10);
        if (interrupt_) interrupt_();
        if (limit_ > 0 && seconds() > limit_) throw TimeUp{};
    }

    Clock::time_point begin_, next_look_;
    double limit_;
    std::function<void()> interrupt_;
    unsigned count_ = 0;
};

}  // namespace layermem::planning
