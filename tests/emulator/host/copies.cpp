// Asynchronous copies from global to shared memory, one list of groups per thread.
//
// A GPU may land a copy any time between its issue and the wait.  Early: at once, so that bytes overwritten too soon
// are missed.  Late: at the wait, and the destination is poisoned until then, so that bytes read too soon are missed.
#include <cstdint>
#include <cstring>

#include "block.hpp"
#include "race.hpp"

namespace lm_emu {

namespace {

void move(const Copy& copy) {
    if (copy.inside)
        std::memcpy(copy.shared, copy.global, static_cast<std::size_t>(copy.bytes));
    else
        std::memset(copy.shared, 0, static_cast<std::size_t>(copy.bytes));
}

// Lands those of a thread's copies that `is_due` names, oldest first.
template <class IsDue>
void land(Thread& thread, const void* code, IsDue is_due) {
    std::size_t kept = 0;
    for (const Copy& copy : thread.copies) {
        if (!is_due(copy)) {
            thread.copies[kept++] = copy;
            continue;
        }
        if (!copy.landed) move(copy);
        race::copy_landed(copy.shared, copy.global, static_cast<std::size_t>(copy.bytes), copy.inside, thread, code);
    }
    thread.copies.resize(kept);
}

}  // namespace

bool copies_land_early() {
    if (machine.launch.copies == LM_EITHER) return (machine.draw() >> 40 & 1) != 0;
    return machine.launch.copies == LM_EARLY;
}

void land_started(Thread& thread, unsigned copies, const void* code) {
    land(thread, code, [copies](const Copy& copy) { return copy.number < copies; });
}

void async_copy(void* shared, const void* global, int bytes, bool inside) {
    Thread& me = *machine.now;
    const auto size = static_cast<std::size_t>(bytes);
    if (reinterpret_cast<std::uintptr_t>(shared) % size != 0 || !machine.is_shared(shared, size))
        machine.fail(text("async_copy: the destination of %s is not %d aligned bytes of shared memory",
                          name_of(me).c_str(), bytes));
    if (reinterpret_cast<std::uintptr_t>(global) % size != 0)  // also of zeros: PTX ISA, "Addresses as Operands"
        machine.fail(text("async_copy: the source of %s is not aligned to %d bytes", name_of(me).c_str(), bytes));
    Copy copy{shared, global, bytes, inside, copies_land_early(), me.commits, me.copies_started++};
    race::copy_issued(shared, global, size, inside, __builtin_return_address(0));
#if defined(__SANITIZE_ADDRESS__)
    char probe[16];  // a source out of bounds is to be reported here, not at the wait
    if (inside) std::memcpy(probe, global, size);
    asm volatile("" : : "r"(probe) : "memory");
#endif
    if (copy.landed)
        move(copy);
    else
        std::memset(shared, 0xFF, size);
    me.copies.push_back(copy);
}

void async_commit() { ++machine.now->commits; }

void async_wait(int groups) {
    if (race::leaves_out(__builtin_return_address(0))) return;
    Thread& me = *machine.now;
    const auto newest = static_cast<unsigned>(groups);
    if (me.commits <= newest) return;
    const unsigned group = me.commits - newest;
    land(me, __builtin_return_address(0), [group](const Copy& copy) { return copy.group < group; });
    race::copies_awaited(me);
    arrive_behind_landed(me);
}

void check_copies(const Thread& thread) {
    if (!thread.copies.empty() || arrives_late(thread))
        machine.fail(
            text("%s has left the kernel without waiting for its asynchronous copies", name_of(thread).c_str()));
}

}  // namespace lm_emu
