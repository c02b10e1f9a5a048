// Blobs in 16 bits, for kernels that compute in fp32: they widen a piece into a buffer that stays in the first-level cache,
// compute there, and round what they have computed once.  Addresses of such blobs are passed as those of floats, beside
// a Storage; only the functions below know how long an element is.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>

#include "cpu/kernels/element_tasks.h"
#include "cpu/microkernels/half.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {

constexpr int64_t kPieceFloats = 2048;  // of a buffer: 8 KiB; a multiple of 64, where masks begin a word

// Element i of a blob.
template <class T>
T* element(T* blob, Storage storage, int64_t i) {
    if (storage == Storage::fp32 || !blob) return blob ? blob + i : nullptr;
    using Half = std::conditional_t<std::is_const_v<T>, const uint16_t, uint16_t>;
    return reinterpret_cast<T*>(reinterpret_cast<Half*>(blob) + i);
}

// The conversions of the active ISA.
struct Conversion {
    Storage storage;
    Widen widen;
    Narrow narrow;

    explicit Conversion(Storage stored)
        : storage(stored),
          widen(stored == Storage::fp16 ? half_kernels().widen_fp16 : half_kernels().widen_bf16),
          narrow(stored == Storage::fp16 ? half_kernels().narrow_fp16 : half_kernels().narrow_bf16) {}

    // Elements [begin, begin + count) of a blob: where they are, or widened into `buffer`.  Null stays null.
    const float* read(const float* blob, int64_t begin, int64_t count, float* buffer) const {
        const float* at = element(blob, storage, begin);
        if (storage == Storage::fp32 || !at) return at;
        widen(buffer, reinterpret_cast<const uint16_t*>(at), count);
        return buffer;
    }
    // Copies the elements to `to`, widened if need be.
    void copy(float* to, const float* blob, int64_t begin, int64_t count) const {
        if (storage == Storage::fp32)
            std::copy_n(blob + begin, count, to);
        else
            read(blob, begin, count, to);
    }
    // Where elements to be written are computed: in the blob, or in `buffer`, with their old values if accumulate.
    // write() stores them.
    float* open(float* blob, int64_t begin, int64_t count, float* buffer, bool accumulate) const {
        float* at = element(blob, storage, begin);
        if (storage == Storage::fp32 || !at) return at;
        if (accumulate) widen(buffer, reinterpret_cast<const uint16_t*>(at), count);
        return buffer;
    }
    void write(float* blob, int64_t begin, int64_t count, const float* buffer) const {
        if (storage == Storage::fp32 || !blob) return;
        narrow(reinterpret_cast<uint16_t*>(element(blob, storage, begin)), buffer, count);
    }
};

// body(begin, size) for pieces of [0, count), of kPieceFloats elements each where a blob is in 16 bits, of a task else.
template <class Body>
void for_each_stored_piece(int64_t count, Storage storage, const Body& body) {
    const int64_t step = storage == Storage::fp32 ? kTaskElements : kPieceFloats;
    parallel_for_ranges(count, kTaskElements, [&](int64_t begin, int64_t end) {
        for (int64_t piece = begin; piece < end; piece += step) body(piece, std::min(step, end - piece));
    });
}

}  // namespace layermem::cpu
