// Device and pinned memory.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "fake_driver.hpp"

namespace fake_driver {

namespace {

constexpr std::size_t ALIGNMENT = 256;
constexpr std::size_t KEPT = 64;           // freed blocks whose addresses are not given out again
constexpr std::size_t PINNED_BYTES = 512;  // of the host, whose page tables take a byte of the device: 8 for 4 KiB

std::size_t rounded(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

// What an allocation takes of the device's memory.
std::size_t taken_by(Block::Kind kind, std::size_t bytes) {
    return kind == Block::DEVICE ? bytes : rounded(bytes, PINNED_BYTES) / PINNED_BYTES;
}

}  // namespace

bool Context::take(std::size_t bytes) {
    const Settings& settings = driver().settings;
    const std::size_t taken = settings.taken + used;
    if (taken > settings.memory || bytes > settings.memory - taken) return false;
    used += bytes;
    return true;
}

void* Memory::allocate(std::size_t bytes, Block::Kind kind) {
    Context* context = current_context();
    if (kind == Block::PINNED && bytes > driver().settings.pinned - std::min(pinned_, driver().settings.pinned))
        return nullptr;
    if (!context->take(taken_by(kind, bytes))) return nullptr;
    if (void* start = map(bytes, kind)) {
        if (kind == Block::PINNED) pinned_ += bytes;
        return start;
    }
    context->used -= taken_by(kind, bytes);
    return nullptr;
}

void* Memory::map(std::size_t bytes, Block::Kind kind) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t usable = rounded(bytes, page), mapped = usable + 2 * page;
    void* mapping = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) return nullptr;
    auto* first = static_cast<std::byte*>(mapping) + page;
    if (mprotect(first, usable, PROT_READ | PROT_WRITE) != 0) {
        munmap(mapping, mapped);
        return nullptr;
    }
    std::memset(first, 0xFF, usable);
    std::byte* start = first + usable - rounded(bytes, ALIGNMENT);
    blocks_[start] = {kind, current_context(), bytes, mapping, mapped};
    return start;
}

void Memory::adopt(const void* start, std::size_t bytes) {
    blocks_[static_cast<const std::byte*>(start)] = {Block::DEVICE, current_context(), bytes, nullptr, 0};
}

void Memory::forget(const void* start) { blocks_.erase(static_cast<const std::byte*>(start)); }

bool Memory::free(const void* start, Block::Kind kind) {
    const auto found = blocks_.find(static_cast<const std::byte*>(start));
    if (found == blocks_.end() || found->second.kind != kind || found->second.mapping == nullptr) return false;
    const Block& block = found->second;
    mmap(block.mapping, block.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    block.context->used -= taken_by(kind, block.bytes);
    if (kind == Block::PINNED) pinned_ -= block.bytes;
    freed_.insert(*found);
    order_.push_back(found->first);
    blocks_.erase(found);
    if (order_.size() > KEPT) forget(order_.front());
    return true;
}

// A process may have so many mappings and no more.
void Memory::forget(const std::byte* start) {
    const auto oldest = freed_.find(start);
    munmap(oldest->second.mapping, oldest->second.mapped);
    freed_.erase(oldest);
    order_.pop_front();
}

bool Memory::freed(const void* at) const {
    const auto* byte = static_cast<const std::byte*>(at);
    const auto after = freed_.upper_bound(byte);
    if (after == freed_.begin()) return false;
    const auto& [first, block] = *std::prev(after);
    return byte < first + block.bytes;
}

const Block* Memory::find(const void* at, Block::Kind kind, const std::byte** start) const {
    const auto* byte = static_cast<const std::byte*>(at);
    auto after = blocks_.upper_bound(byte);
    if (after == blocks_.begin()) return nullptr;
    const auto& [first, block] = *--after;
    if (block.kind != kind || byte >= first + block.bytes) return nullptr;
    if (start != nullptr) *start = first;
    return &block;
}

bool Memory::holds(const void* at, std::size_t bytes, Block::Kind kind) const {
    const std::byte* start = nullptr;
    const Block* block = find(at, kind, &start);
    return block != nullptr &&
           bytes <= block->bytes - static_cast<std::size_t>(static_cast<const std::byte*>(at) - start);
}

Memory::Snapshot Memory::device_bytes() const {
    Snapshot copies;
    for (const auto& [start, block] : blocks_)
        if (block.kind == Block::DEVICE) copies[start].assign(start, start + block.bytes);
    return copies;
}

void Memory::flip_a_changed_bit(const Snapshot& before) {
    constexpr std::uint32_t MASK = 1u << 22;
    std::vector<std::byte*> changed;
    for (const auto& [start, copy] : before)
        for (std::size_t at = 0; at + sizeof MASK <= copy.size(); at += sizeof MASK)
            if (std::memcmp(start + at, &copy[at], sizeof MASK) != 0)
                changed.push_back(const_cast<std::byte*>(start) + at);
    if (changed.empty()) return;
    std::byte* chosen = changed[changed.size() / 2];
    std::uint32_t word = 0;
    std::memcpy(&word, chosen, sizeof word);
    word ^= MASK;
    std::memcpy(chosen, &word, sizeof word);
}

}  // namespace fake_driver

using namespace fake_driver;

static CUresult allocate(std::size_t bytes, Block::Kind kind, void** out) {
    return guarded([&](Driver& d) {
        if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
        if (d.streams.breaks_captures()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        *out = d.memory.allocate(bytes, kind);
        return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    });
}

static CUresult release(const void* start, Block::Kind kind) {
    return guarded([&](Driver& d) {
        if (d.streams.breaks_captures()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        if (const CUresult result = d.streams.finish_all()) return result;  // freeing waits for the device
        if (d.memory.free(start, kind)) return CUDA_SUCCESS;
        complain(d.memory.freed(start) ? "memory is freed twice" : "what is freed was never allocated");
        return CUDA_ERROR_INVALID_VALUE;
    });
}

FAKE_DRIVER_API cuMemAlloc_v2(CUdeviceptr* out, std::size_t bytes) {
    void* start = nullptr;
    const CUresult result = allocate(bytes, Block::DEVICE, &start);
    if (result == CUDA_SUCCESS) *out = reinterpret_cast<CUdeviceptr>(start);
    return result;
}

FAKE_DRIVER_API cuMemFree_v2(CUdeviceptr start) { return release(reinterpret_cast<void*>(start), Block::DEVICE); }
FAKE_DRIVER_API cuMemHostAlloc(void** out, std::size_t bytes, unsigned flags) {
    constexpr unsigned PORTABLE = 1, DEVICE_MAP = 2, WRITE_COMBINED = 4;
    if ((flags & ~(PORTABLE | DEVICE_MAP | WRITE_COMBINED)) != 0) return CUDA_ERROR_INVALID_VALUE;
    return allocate(bytes, Block::PINNED, out);
}
FAKE_DRIVER_API cuMemAllocHost_v2(void** out, std::size_t bytes) { return allocate(bytes, Block::PINNED, out); }
FAKE_DRIVER_API cuMemFreeHost(void* start) { return release(start, Block::PINNED); }

FAKE_DRIVER_API cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* start, unsigned) {
    return guarded([&](Driver& d) {
        if (d.memory.find(start, Block::PINNED) == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *out = reinterpret_cast<CUdeviceptr>(start);
        return CUDA_SUCCESS;
    });
}

FAKE_DRIVER_API cuMemHostGetFlags(unsigned* flags, void* start) {
    return guarded([&](Driver& d) {
        *flags = 0;
        return d.memory.find(start, Block::PINNED) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
}

FAKE_DRIVER_API cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
    return guarded([&](Driver& d) {
        *total = d.settings.memory;
        *free = *total - std::min(*total, d.settings.taken + current_context()->used);
        return CUDA_SUCCESS;
    });
}

FAKE_DRIVER_API cuMemGetAddressRange_v2(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr at) {
    return guarded([&](Driver& d) {
        const std::byte* start = nullptr;
        const Block* block = d.memory.find(reinterpret_cast<void*>(at), Block::DEVICE, &start);
        if (block == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (base != nullptr) *base = reinterpret_cast<CUdeviceptr>(start);
        if (bytes != nullptr) *bytes = block->bytes;
        return CUDA_SUCCESS;
    });
}
