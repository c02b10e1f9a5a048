// How kernels on flat arrays are divided into tasks.
#pragma once
#include <cstdint>
#include <stdexcept>

namespace layermem::cpu {

constexpr int64_t kTaskElements =
    16384;  // elements of one task; masks and random counters begin a word at multiples of 64

inline void check_count(int64_t count) {
    if (count < 0) throw std::invalid_argument("the number of elements must not be negative");
}

}  // namespace layermem::cpu
