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

}  // namespace

bool copies_land_early() {
    if (machine.launch.copies == LM_EITHER) return (machine.draw() >> 40 & 1) != 0;
    return machine.launch.copies == LM_EARLY;
}

void land_before(Thread& thread, unsigned group, const void* code) {
    std::size_t kept = 0;
    for (const Copy& copy : thread.copies) {
        if (copy.group >= group) {
            thread.copies[kept++] = copy;
            continue;
        }
        if (!copy.landed) move(copy);
        race::copy_landed(copy.shared, copy.global, static_cast<std::size_t>(copy.bytes), copy.inside, thread, code);
    }
    thread.copies.resize(kept);
}

void async_copy(void* shared, const void* global, int bytes, bool inside) {
    Thread& me = *machine.now;
    const auto size = static_cast<std::size_t>(bytes);
    if (reinterpret_cast<std::uintptr_t>(shared) % size != 0 || !machine.is_shared(shared, size))
        machine.fail(text("async_copy: the destination of %s is not %d aligned bytes of shared memory",
                          name_of(me).c_str(), bytes));
    if (inside && reinterpret_cast<std::uintptr_t>(global) % size != 0)
        machine.fail(text("async_copy: the source of %s is not aligned to %d bytes", name_of(me).c_str(), bytes));
    Copy copy{shared, global, bytes, inside, copies_land_early(), me.commits};
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
    land_before(me, me.commits - newest, __builtin_return_address(0));
    race::copies_awaited(me);
}

void land_all(Thread& thread) { land_before(thread, ~0u, __builtin_return_address(0)); }

}  // namespace lm_emu
