// The race checker's ear in the machine.  Without LM_CHECK_RACES all of it is nothing.
#pragma once

#include <cstddef>
#include <string>

namespace lm_emu::race {

#if defined(LM_CHECK_RACES)
void launch_begins();
void block_ends();
std::string findings();     // one line each, empty when there are none
std::string bank_report();  // of the last launch, if it asked

void accessed(const void* start, std::size_t bytes, bool write, bool atomic, const void* code);
void copy_issued(const void* shared, const void* global, std::size_t bytes, bool inside, const void* code);
void copy_landed(const void* shared, const void* global, std::size_t bytes, bool inside, const void* code);
#else
inline void launch_begins() {}
inline void block_ends() {}
inline std::string findings() { return {}; }
inline std::string bank_report() { return {}; }
inline void accessed(const void*, std::size_t, bool, bool, const void*) {}
inline void copy_issued(const void*, const void*, std::size_t, bool, const void*) {}
inline void copy_landed(const void*, const void*, std::size_t, bool, const void*) {}
#endif

}  // namespace lm_emu::race
