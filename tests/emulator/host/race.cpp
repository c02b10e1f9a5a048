// Finds accesses that nothing orders: the race checker.
//
// A kernel compiled with -fsanitize=thread calls a __tsan_ function before every access to memory.  libtsan is not
// linked: the functions are ours, in callbacks.cpp.  Each four bytes of memory have a cell with their last few
// accesses:
//
//      who (thread, block)   when (block barriers passed, warp barriers passed)   bytes of the four, write?, atomic?
//
// Two accesses to the same byte race when one writes, not both are atomic, and
//      they come from different blocks (nothing orders blocks within a launch), or
//      from different threads of a block between the same two block barriers
//          (of one warp: also between the same two warp barriers).
// Where a block has barriers in shared memory (warpgroup.cuh), clocks order its threads too: each thread has the latest
// time that it knows of every thread, of every thread's asynchronous copies, and of its bulk copies; an arrival leaves them
// at the barrier, a wait takes them from there, warp and block barriers exchange them.  An access is ordered before those of
// a thread that knows of a later time; nothing else orders a bulk copy, not even for its own thread.  A product reads what
// other threads have written only if these have passed a proxy_fence since.  A bulk copy overwrites what they have accessed,
// and arrives at the barrier that one of them has made, under the same condition.
//
// An asynchronous copy writes from its issue to its wait, and any other access between is a finding, its own thread's
// too. So is a read of shared memory that no one has written in this block. Not seen: an access that fell out of its
// cell, since a cell remembers four.
#include "race.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "banks.hpp"
#include "block.hpp"

namespace lm_emu::race {

namespace {

// What accesses.  PROXY: products, and bulk copies where they are issued, in the time of their thread.
enum By : std::uint8_t { THREAD, COPY, PROXY, BULK_COPY };

struct Access {
    std::uint32_t block;    // in the grid
    std::uint32_t barrier;  // block barriers passed
    std::uint32_t code;     // offset of the instruction in this module
    std::uint16_t sync;     // warp barriers passed, modulo 2^16
    std::uint16_t thread;
    std::uint8_t bytes;  // which of the four; none: the slot is free
    bool write, atomic;
    By by;
    std::uint32_t time;    // of the thread's clock, or that of its copies of this kind
    std::uint32_t fences;  // that the thread has passed
};

// What the threads of a block know of each other: times by thread, behind them times of the threads' copies, and behind
// those the times of their bulk copies.
using Times = std::vector<std::uint32_t>;

std::size_t time_of(By by, std::size_t thread) {
    const std::size_t threads = machine.threads.size();
    return by == COPY ? threads + thread : by == BULK_COPY ? 2 * threads + thread : thread;
}

std::size_t all_times() { return 3 * machine.threads.size(); }

struct Clocks {
    std::uint64_t block = 0;  // that they are of
    std::vector<Times> known;
    Times of_copies, of_bulk_copies;  // by thread
    Times fences;                     // by thread
    struct AtBarrier {
        Times gathered, ended;  // of all arrivals; of those of phases that have ended
        unsigned thread;        // that has made it,
        std::uint32_t fences;   // where it had passed so many fences,
        std::uint32_t code;     // at this instruction
    };
    std::unordered_map<const void*, AtBarrier> barriers;

    bool are_used() const { return block == machine.block_number && block != 0; }
    void tick(unsigned thread) { ++known[thread][thread]; }
};

Clocks clocks;

void learn(Times& times, const Times& others) {
    for (std::size_t i = 0; i < times.size(); ++i) times[i] = std::max(times[i], others[i]);
}

void meet(unsigned first, unsigned count) {
    if (!clocks.are_used()) return;
    Times all(all_times());
    for (unsigned i = first; i < first + count; ++i) {
        clocks.tick(i);
        learn(all, clocks.known[i]);
    }
    for (unsigned i = first; i < first + count; ++i) clocks.known[i] = all;
}

struct Cell {
    static constexpr int SLOTS = 4;
    Access slot[SLOTS];
    std::uint64_t written_in;  // the block, if shared memory, that `written` speaks of
    std::uint8_t written;      // bytes that the block has written
    std::uint8_t in_flight;    // bytes that an asynchronous copy is to fill,
    std::uint32_t flight;      // issued at this instruction
    std::uint64_t flight_in;   // in this block
    std::uint8_t next;         // slot to give up next
};

constexpr std::uintptr_t PAGE = 4096;

struct Page {
    std::uint64_t launch;  // cells of an earlier launch are void
    Cell cell[PAGE / 4];
};

std::unordered_map<std::uintptr_t, std::unique_ptr<Page>> pages;
struct {
    std::uintptr_t number;
    Page* page;
} recent[64];
std::uint64_t launch_number = 0;
std::uintptr_t module_base = 0;
std::string found;
std::set<std::uint32_t> places_reached, places_left_out;        // of calls of barriers, waits and fences
std::set<std::tuple<int, std::uint32_t, std::uint32_t>> known;  // findings by kind and places, each reported once

enum Kind { RACE, IN_FLIGHT, UNWRITTEN, UNFENCED };

Page& page_of(std::uintptr_t address) {
    const std::uintptr_t number = address / PAGE;
    auto& cached = recent[number % 64];
    if (cached.number != number || cached.page == nullptr) {
        auto& page = pages[number];
        if (page == nullptr) page = std::make_unique<Page>();
        cached = {number, page.get()};
    }
    Page& page = *cached.page;
    if (page.launch != launch_number) {
        std::memset(page.cell, 0, sizeof page.cell);
        page.launch = launch_number;
    }
    return page;
}

std::uint32_t offset_of(const void* code) {
    return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(code) - 1 - module_base);
}

// Places are written @offset@, for the launcher to turn into file and line.
void report(Kind kind, std::uint32_t here, std::uint32_t there, const std::string& what) {
    constexpr std::size_t MOST = 20;
    if (known.size() < MOST && known.insert({kind, here < there ? here : there, here < there ? there : here}).second)
        found += (found.empty() ? "" : "\n") + what;
}

const char* verb(const Access& a) { return a.atomic ? "atomic access" : a.write ? "write" : "read"; }

std::string side(const Access& a) {
    return text("%s at @%x@ by thread %u of block %u", verb(a), a.code, unsigned{a.thread}, a.block);
}

bool ordered(const Access& a, const Access& b, bool shared) {
    if (a.block != b.block) return shared;  // shared memory: another array, long gone
    if (a.by != BULK_COPY) {
        if (a.thread == b.thread || a.barrier != b.barrier) return true;
        if (a.thread / LANES == b.thread / LANES && a.sync != b.sync) return true;
    }
    if (!clocks.are_used()) return false;
    return clocks.known[b.thread][time_of(a.by, a.thread)] > a.time;
}

bool is_by_proxy(const Access& access) { return access.by == PROXY || access.by == BULK_COPY; }

Access& slot_for(Cell& cell, const Access& now, bool shared) {
    for (Access& old : cell.slot) {
        const bool covered = (old.bytes & ~now.bytes) == 0;
        if (old.bytes != 0 && covered && old.thread == now.thread && old.block == now.block && old.write == now.write &&
            old.atomic == now.atomic && is_by_proxy(old) == is_by_proxy(now))
            return old;
    }
    for (Access& old : cell.slot)  // what a barrier of all threads has put behind us races with nothing that may come
        if (old.bytes == 0 ||
            (shared && (old.block != now.block || (old.barrier != now.barrier && old.by != BULK_COPY))))
            return old;
    if (now.write && clocks.are_used())
        for (Access& old : cell.slot)  // nor does what came before this write
            if ((old.bytes & ~now.bytes) == 0 && ordered(old, now, shared)) return old;
    for (int tries = 0; tries < Cell::SLOTS; ++tries) {  // drops a read rather than a write
        Access& old = cell.slot[cell.next++ % Cell::SLOTS];
        if (!old.write) return old;
    }
    return cell.slot[cell.next++ % Cell::SLOTS];
}

void touch(Cell& cell, const Access& now, bool shared) {
    if ((cell.in_flight & now.bytes) != 0 && cell.flight_in == machine.block_number)
        report(
            IN_FLIGHT, now.code, cell.flight,
            text("race: %s, while the asynchronous copy issued at @%x@ is in flight", side(now).c_str(), cell.flight));
    if (shared) {
        if (cell.written_in != machine.block_number) {
            cell.written_in = machine.block_number;
            cell.written = 0;
        }
        if (now.write)
            cell.written |= now.bytes;
        else if ((now.bytes & ~cell.written) != 0)
            report(UNWRITTEN, now.code, 0,
                   text("uninitialised: %s of shared memory that was never written", side(now).c_str()));
    }
    for (const Access& old : cell.slot) {
        if ((old.bytes & now.bytes) == 0 || !(old.write || now.write) || (old.atomic && now.atomic)) continue;
        if (!ordered(old, now, shared))
            report(RACE, now.code, old.code, text("race: %s and %s", side(old).c_str(), side(now).c_str()));
    }
    slot_for(cell, now, shared) = now;
}

// Calls visit(cell, which bytes of it, shared?) for every cell of a range.
template <class Visit>
void each_cell(const void* start, std::size_t bytes, Visit visit) {
    auto at = reinterpret_cast<std::uintptr_t>(start);
    const std::uintptr_t end = at + bytes;
    const bool shared = machine.is_shared(start, bytes);
    while (at < end) {
        const std::uintptr_t stop = (at | 3) + 1 < end ? (at | 3) + 1 : end;
        const unsigned mask = (0xFu >> (4 - (stop - at))) << (at & 3);
        visit(page_of(at).cell[at % PAGE / 4], static_cast<std::uint8_t>(mask), shared);
        at = stop;
    }
}

Access access_now(bool write, bool atomic, const void* code) {
    const Thread& me = *machine.now;
    return {machine.linear_block,
            static_cast<std::uint32_t>(machine.epoch),
            offset_of(code),
            static_cast<std::uint16_t>(me.warp->epoch),
            static_cast<std::uint16_t>(me.id),
            0,
            write,
            atomic,
            THREAD,
            clocks.are_used() ? clocks.known[me.id][me.id] : 0,
            clocks.are_used() ? clocks.fences[me.id] : 0};
}

Access by_proxy(Access access) {
    access.by = PROXY;
    return access;
}

// The same by a copy of the thread.
Access copied(Access access, const Thread& thread, By by) {
    access.thread = static_cast<std::uint16_t>(thread.id);
    access.sync = static_cast<std::uint16_t>(thread.warp->epoch);
    access.by = by;
    access.time = !clocks.are_used() ? 0 : (by == COPY ? clocks.of_copies : clocks.of_bulk_copies)[thread.id];
    access.fences = clocks.are_used() ? clocks.fences[thread.id] : 0;
    return access;
}

// Marks the accesses of a range in all of its cells.
void touch_range(const void* start, std::size_t bytes, Access now) {
    each_cell(start, bytes, [&](Cell& cell, std::uint8_t mask, bool shared) {
        now.bytes = mask;
        touch(cell, now, shared);
    });
}

void mark_in_flight(const void* shared, std::size_t bytes, const void* code) {
    each_cell(shared, bytes, [&](Cell& cell, std::uint8_t mask, bool) {
        cell.in_flight =
            static_cast<std::uint8_t>(cell.flight_in == machine.block_number ? cell.in_flight | mask : mask);
        cell.flight_in = machine.block_number;
        cell.flight = offset_of(code);
    });
}

void mark_landed(const void* shared, std::size_t bytes) {
    each_cell(shared, bytes, [&](Cell& cell, std::uint8_t mask, bool) {
        cell.in_flight = static_cast<std::uint8_t>(cell.in_flight & ~mask);
    });
}

// Whether it is one of a thread, or of its asynchronous copy, that has passed no proxy_fence since.
bool is_unfenced(const Access& access) {
    return !is_by_proxy(access) && access.block == machine.linear_block &&
           access.fences == clocks.fences[access.thread];
}

}  // namespace

void launch_begins() {
    ++launch_number;
    found.clear();
    known.clear();
    banks::launch_begins();
    if (module_base == 0) {
        Dl_info module;
        dladdr(reinterpret_cast<const void*>(&launch_begins), &module);
        module_base = reinterpret_cast<std::uintptr_t>(module.dli_fbase);
    }
}

void block_ends() { banks::block_ends(); }

bool leaves_out(const void* code) {
    const std::uint32_t place = offset_of(code);
    places_reached.insert(place);
    return !places_left_out.empty() && places_left_out.count(place) != 0;
}

void leave_out(const std::uint32_t* places, std::size_t count) {
    places_left_out = std::set<std::uint32_t>(places, places + count);
}

std::string reached() {
    std::string lines;
    for (const std::uint32_t place : places_reached) lines += text("@%x@\n", place);
    return lines;
}

std::string findings() { return found; }

std::string bank_report() { return banks::report(); }

void accessed(const void* start, std::size_t bytes, bool write, bool atomic, const void* code) {
    if (machine.now == nullptr || machine.stacks.holds(start)) return;
    touch_range(start, bytes, access_now(write, atomic, code));
    if (machine.is_shared(start, bytes)) banks::note(start, bytes, write, offset_of(code));
}

void copy_issued(const void* shared, const void* global, std::size_t bytes, bool inside, const void* code) {
    if (inside) touch_range(global, bytes, access_now(false, false, code));
    accessed(shared, bytes, true, false, code);
    mark_in_flight(shared, bytes, code);
}

void copy_landed(const void* shared, const void* global, std::size_t bytes, bool inside, const Thread& thread,
                 const void* code) {
    mark_landed(shared, bytes);
    touch_range(shared, bytes, copied(access_now(true, false, code), thread, COPY));
    if (inside) touch_range(global, bytes, copied(access_now(false, false, code), thread, COPY));
}

// ---- barriers in shared memory, bulk copies and products --------------------------------------------------------------

void barrier_made(const void* barrier, const void* code) {
    const std::size_t threads = machine.threads.size();
    if (!clocks.are_used()) {
        clocks = {};
        clocks.block = machine.block_number;
        clocks.known.assign(threads, Times(all_times()));
        clocks.of_copies.assign(threads, 0);
        clocks.of_bulk_copies.assign(threads, 0);
        clocks.fences.assign(threads, 0);
    }
    const unsigned me = machine.now->id;
    clocks.barriers[barrier] = {Times(all_times()), Times(all_times()), me, clocks.fences[me], offset_of(code)};
    accessed(barrier, 8, true, false, code);
}

void barrier_used(const void* barrier) { accessed(barrier, 8, true, true, __builtin_return_address(0)); }

void arrived(const void* barrier) {
    const unsigned me = machine.now->id;
    clocks.tick(me);
    learn(clocks.barriers[barrier].gathered, clocks.known[me]);
}

void copies_arrived(const void* barrier, const Thread& thread) {
    std::uint32_t& time = clocks.barriers[barrier].gathered[time_of(COPY, thread.id)];
    time = std::max(time, ++clocks.of_copies[thread.id]);
}

void copies_awaited(const Thread& thread) {
    if (!clocks.are_used()) return;
    std::uint32_t& time = clocks.known[thread.id][time_of(COPY, thread.id)];
    time = std::max(time, ++clocks.of_copies[thread.id]);
}

void phase_ended(const void* barrier) { clocks.barriers[barrier].ended = clocks.barriers[barrier].gathered; }

void passed(const void* barrier) { learn(clocks.known[machine.now->id], clocks.barriers[barrier].ended); }

void warp_met() { meet(machine.now->warp->first, machine.now->warp->size); }

void block_met() { meet(0, static_cast<unsigned>(machine.threads.size())); }

void fenced() {
    if (clocks.are_used()) ++clocks.fences[machine.now->id];
}

void bulk_issued(const LateArrival& copy) {
    const std::uint32_t here = offset_of(copy.code);
    const Clocks::AtBarrier& barrier = clocks.barriers[copy.barrier];
    if (barrier.fences == clocks.fences[barrier.thread])
        report(UNFENCED, here, barrier.code,
               text("race: bulk copy at @%x@ arrives at the barrier made at @%x@ without a proxy_fence behind it", here,
                    barrier.code));
    each_cell(copy.shared, copy.bytes, [&](Cell& cell, std::uint8_t mask, bool) {
        for (const Access& old : cell.slot)
            if ((old.bytes & mask) != 0 && is_unfenced(old))
                report(UNFENCED, here, old.code,
                       text("race: bulk copy at @%x@ overwrites the bytes of a %s without a proxy_fence behind it",
                            here, side(old).c_str()));
    });
    touch_range(copy.global, copy.bytes, by_proxy(access_now(false, false, copy.code)));
    touch_range(copy.shared, copy.bytes, by_proxy(access_now(true, false, copy.code)));
    mark_in_flight(copy.shared, copy.bytes, copy.code);
}

void bulk_landed(const LateArrival& copy) {
    mark_landed(copy.shared, copy.bytes);
    touch_range(copy.shared, copy.bytes, copied(access_now(true, false, copy.code), *copy.thread, BULK_COPY));
    touch_range(copy.global, copy.bytes, copied(access_now(false, false, copy.code), *copy.thread, BULK_COPY));
    std::uint32_t& time = clocks.barriers[copy.barrier].gathered[time_of(BULK_COPY, copy.thread->id)];
    time = std::max(time, ++clocks.of_bulk_copies[copy.thread->id]);
}

void product_reads(const void* start, std::size_t bytes, const void* code) {
    touch_range(start, bytes, by_proxy(access_now(false, false, code)));
    banks::note(start, bytes, false, offset_of(code));
    each_cell(start, bytes, [&](Cell& cell, std::uint8_t mask, bool) {
        for (const Access& old : cell.slot)
            if ((old.bytes & mask) != 0 && old.write && is_unfenced(old))
                report(UNFENCED, offset_of(code), old.code,
                       text("race: product at @%x@ reads what %s has written without a proxy_fence behind it",
                            offset_of(code), side(old).c_str()));
    });
}

}  // namespace lm_emu::race
