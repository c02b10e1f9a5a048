// Counts the wavefronts of shared memory accesses, for launches that ask (LmLaunch::banks); part of the race build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lm_emu::banks {

void launch_begins();
// The running lane's access to shared memory by the instruction at `code`.
void note(const void* start, std::size_t bytes, bool write, std::uint32_t code);
void block_ends();
// One line per instruction: place, "read" or "write", bytes a lane, times executed by a warp, wavefronts, least
// possible.
std::string report();

}  // namespace lm_emu::banks
