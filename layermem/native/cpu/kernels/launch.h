// A kernel with its pointers and geometry bound: made once, when a schedule is bound, and then only called.
//
// A launch uses the ISA that was active when it was made.  It takes its workspace, if it needs one, as a pointer to as
// many bytes as the family's ..._workspace_bytes() returns for the same geometry; that number depends on the geometry only,
// neither on the number of threads nor on the ISA.
#pragma once
#include <cstdint>
#include <functional>

namespace layermem::cpu {

using Launch = std::function<void()>;
using StepLaunch = std::function<void(uint64_t step)>;  // draws random numbers of a step of training
// learning rate, factor of the gradient, part of the parameter that decoupled decay takes
using UpdateLaunch = std::function<void(float rate, float gain, float shrink)>;

// Rows [first, first + count) of the `all` rows of a batch: all of them, or those of one slice where a step runs in
// slices of the batch.
struct RowSlice {
    int64_t first, count, all;

    bool is_whole() const { return count == all; }
    bool is_last() const { return first + count == all; }
};

// Rows [first, first + count) of a batch of `of` rows; of = 0: these are all rows.
inline RowSlice row_slice(int64_t count, int64_t first, int64_t of) { return {first, count, of ? of : count}; }

struct Pair {
    int64_t h, w;
};

// Rows of the longest block, of at most `block` rows, within which a slice of `each` rows of a batch of `rows` ends; 0 if
// there is none.  Every part of the batch begins a block (parts as chunk_begin divides the rows).
int64_t longest_divided_block(int64_t each, int64_t rows, int64_t parts, int64_t block);

constexpr int64_t kAlignment = 256;  // bytes: every buffer and every part of a workspace begins at a multiple

inline int64_t align_up(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Aligned bytes of `count` values of T.
template <class T>
int64_t aligned_bytes(int64_t count) {
    return align_up(count * static_cast<int64_t>(sizeof(T)));
}

}  // namespace layermem::cpu
