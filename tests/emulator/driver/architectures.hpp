// What GPUs of each compute capability have, where a launch may exceed it.
// source  CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"
#pragma once

#include <cstddef>

namespace fake_driver {

struct Architecture {
    int capability;
    std::size_t shared_of_block;  // bytes that a block may opt in to, static ones among them
    std::size_t shared;           // bytes of a multiprocessor
    std::size_t shared_reserved;  // bytes that the system takes for each block
    unsigned threads, blocks;     // of a multiprocessor at once
};

constexpr Architecture ARCHITECTURES[] = {
    {75, 64 << 10, 64 << 10, 0, 1024, 16},       {80, 163 << 10, 164 << 10, 1024, 2048, 32},
    {86, 99 << 10, 100 << 10, 1024, 1536, 16},   {87, 163 << 10, 164 << 10, 1024, 1536, 16},
    {89, 99 << 10, 100 << 10, 1024, 1536, 24},   {90, 227 << 10, 228 << 10, 1024, 2048, 32},
    {100, 227 << 10, 228 << 10, 1024, 2048, 32}, {120, 99 << 10, 100 << 10, 1024, 1536, 24},
};

// On all of them.
constexpr unsigned MAX_THREADS = 1024, MAX_BLOCK_Z = 64;  // of a block; 1024 along x and y
constexpr unsigned MAX_GRID_X = 2147483647, MAX_GRID_YZ = 65535;
constexpr unsigned REGISTERS = 65536;                // of a multiprocessor, and of a block
constexpr unsigned MAX_REGISTERS = 255;              // of a thread
constexpr std::size_t SHARED_BY_DEFAULT = 48 << 10;  // of a block without an opt-in, static bytes among them
constexpr std::size_t MAX_ARGUMENT_BYTES = 4096;     // that drivers before 12.1 take as well

// The newest one that is not newer than the device.
const Architecture& architecture();

}  // namespace fake_driver
