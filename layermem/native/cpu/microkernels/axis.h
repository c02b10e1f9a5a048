// The axis that a kernel works along: x is [outer][size][inner].
#pragma once
#include <cstdint>

namespace layermem::cpu {

struct Axis {
    int64_t outer, size, inner;
    int64_t positions() const { return outer * inner; }  // rows along the axis
    void check() const;                                  // std::invalid_argument for a size below 1
};

// If inner is 1, rows of at most this many elements are processed kLanes at a time, transposed, so that short rows fill
// the lanes of a register too.
constexpr int64_t kShortRow = 32;

}  // namespace layermem::cpu
