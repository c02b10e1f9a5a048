// Stacks that take turns on one operating-system thread.
#pragma once

#include <cstddef>

namespace lm_emu {

// One flow of control: its stack, and the stack pointer where it was left.
class Fiber {
  public:
    Fiber() = default;  // the flow that is running now; the first switch away from it fills it in

    // Prepares `entry`, which never returns, to run on [bottom, bottom + bytes).  `colour` shifts the first frame a
    // little, lest the busiest lines of all stacks meet in the same cache sets.
    void prepare(void (*entry)(), std::byte* bottom, std::size_t bytes, unsigned colour);

    // Leaves `from` and goes on where `to` was left.
    static void go(Fiber& from, Fiber& to);

    // The first thing on a new stack: notifies AddressSanitizer that the switch is complete.
    static void arrived();

  private:
    void* pointer_ = nullptr;
    std::byte* bottom_ = nullptr;  // the stack's bounds and ASan's own record of it
    std::size_t bytes_ = 0;
    void* shadow_ = nullptr;
};

// Memory for many stacks of one size, in one reserved range.  A stack is opened when it is first asked for (each costs
// the process two mappings, of which Linux grants some 65000), and touched only as far as used.
class Stacks {
  public:
    static constexpr std::size_t BYTES = 256 * 1024;

    Stacks() = default;
    ~Stacks() { close(); }
    Stacks(const Stacks&) = delete;
    Stacks& operator=(const Stacks&) = delete;

    std::byte* at(unsigned index);
    void close();  // all, until they are asked for again; none is in use
    bool holds(const void* address) const { return address >= start_ && address < start_ + COUNT * BYTES; }

  private:
    static constexpr std::size_t COUNT = 1024;       // most threads of a block
    static constexpr std::size_t GUARD = 64 * 1024;  // never opened, at the low end; a multiple of every page size
    void reserve();
    void open_all();

    std::byte* start_ = nullptr;
    unsigned open_ = 0;
};

}  // namespace lm_emu
