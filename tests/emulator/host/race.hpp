// The race checker's ear in the machine.  Without LM_CHECK_RACES all of it is nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lm_emu {
struct LateArrival;
struct Thread;
}  // namespace lm_emu

namespace lm_emu::race {

#if defined(LM_CHECK_RACES)
void launch_begins();
void block_ends();
std::string findings();     // one line each, empty when there are none
std::string bank_report();  // of the last launch, if it asked

// Barriers, waits and fences that the next launches leave out, by the places of their calls (machine.hpp).
bool leaves_out(const void* code);
void leave_out(const std::uint32_t* places, std::size_t count);
std::string reached();

void accessed(const void* start, std::size_t bytes, bool write, bool atomic, const void* code);
void copy_issued(const void* shared, const void* global, std::size_t bytes, bool inside, const void* code);
void copy_landed(const void* shared, const void* global, std::size_t bytes, bool inside, const Thread& thread,
                 const void* code);

void bulk_issued(const LateArrival& copy);
void bulk_landed(const LateArrival& copy);

// What warpgroup.cuh orders.
void barrier_made(const void* barrier, const void* code);
void barrier_used(const void* barrier);
void arrived(const void* barrier);                               // the running thread
void copies_arrived(const void* barrier, const Thread& thread);  // that thread's, which have landed
void copies_awaited(const Thread& thread);                       // by that thread, which knows of them now
void phase_ended(const void* barrier);
void passed(const void* barrier);  // by the running thread, which has waited
void warp_met();
void block_met();
void fenced();
void product_reads(const void* start, std::size_t bytes, const void* code);
#else
inline void launch_begins() {}
inline void block_ends() {}
inline std::string findings() { return {}; }
inline std::string bank_report() { return {}; }
inline bool leaves_out(const void*) { return false; }
inline void leave_out(const std::uint32_t*, std::size_t) {}
inline std::string reached() { return {}; }
inline void accessed(const void*, std::size_t, bool, bool, const void*) {}
inline void copy_issued(const void*, const void*, std::size_t, bool, const void*) {}
inline void copy_landed(const void*, const void*, std::size_t, bool, const Thread&, const void*) {}
inline void bulk_issued(const LateArrival&) {}
inline void bulk_landed(const LateArrival&) {}
inline void barrier_made(const void*, const void*) {}
inline void barrier_used(const void*) {}
inline void arrived(const void*) {}
inline void copies_arrived(const void*, const Thread&) {}
inline void copies_awaited(const Thread&) {}
inline void phase_ended(const void*) {}
inline void passed(const void*) {}
inline void warp_met() {}
inline void block_met() {}
inline void fenced() {}
inline void product_reads(const void*, std::size_t, const void*) {}
#endif

}  // namespace lm_emu::race
