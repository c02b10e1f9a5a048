// Least recomputation of a chain of blocks within a number of bytes, by dynamic programming.
//
//     blocks       0 -x0-> 1 -x1-> 2 -x2-> 3          a boundary between two blocks is one value
//     C(s, t, m)   backward of the blocks [s, t) within m bytes, in addition to the inputs of block s
//
//     keep    forward of a range [s, k), whose kept values and boundary stay    + C(k, t, m - those)
//             + backward of the range, which recomputes the other values
//     drop    forward of [s, k), of which the boundary before k alone stays     + C(k, t, m - it) + C(s, k, m)
//     last    a range [s, t) at the end needs no boundary, and where it ran before and keeps nothing no forward either
//
// A first forward costs nothing, because its ops run anyway.  So C counts recomputations, each as often as it runs.
//
// source  Beaumont, Herrmann, Pallez, Shilova, "Optimal memory-aware backpropagation of deep join networks", 2020 (Rotor);
//         here a range of several blocks has separate plans, and bytes and seconds differ from block to block
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planning/types.h"

namespace layermem::planning::nested {

// A plan of the blocks from one on, up to `end`: some values are kept from forward to backward, the rest is recomputed.
struct RangePlan {
    int32_t end = 0;
    Bytes kept_bytes = 0;      // of values inside
    Bytes forward_bytes = 0;   // most in use while forward runs, kept values included; boundary before it and base not
    Bytes backward_bytes = 0;  // most in use while backward runs, all else of that op included; boundary before it not
    Seconds forward_seconds = 0;   // of forward, when it runs again
    Seconds backward_seconds = 0;  // of what backward recomputes
};

struct Chain {
    // per block
    std::vector<Bytes> boundary_bytes;  // of the boundary to the next block
    std::vector<Bytes> base_bytes;      // in use besides while its backward is about to begin: gradients, parameters
    std::vector<Bytes> forward_bytes;   // most in use while forward runs for its boundary alone
    std::vector<Seconds> forward_seconds;
    std::vector<std::vector<RangePlan>> plans;  // of the ranges that begin there
};

// Blocks [begin, end): forward, or the backward of one plan.
struct ChainStep {
    int32_t begin = 0, end = 0;
    int32_t plan = -1;  // index in plans[begin]; -1 keeps the boundary at `end` alone
    bool is_forward = true;
    bool runs_first = true;  // of forward: for the first time
};

class ChainProgram {
  public:
    // Bytes are counted in `units` of equal size from the least base to `most_bytes`, each number rounded up.
    ChainProgram(Chain chain, Bytes most_bytes, int32_t units);
    // Returns the seconds of recomputation within so many units more than the least base, infinite if nothing fits.
    Seconds least_seconds(int32_t units) const { return value(0, blocks_)[units]; }
    int32_t units() const { return units_; }
    int32_t units_of(Bytes bytes) const;  // rounded down, above the least base; -1 below it
    std::vector<ChainStep> steps(int32_t units) const;

  private:
    // One way to run [s, t): its seconds within m bytes are the sum of `rest` within m - kept, of `before` within m, and
    // of `seconds`, for m of at least `least`.
    struct Choice {
        int32_t least, kept;
        Seconds seconds;
        const double* rest;    // of C(end, t), or null
        const double* before;  // of C(s, end), or null
        int32_t end, plan;
    };
    template <class Visit>
    void for_each_choice(int32_t s, int32_t t, Visit visit) const;
    Seconds seconds_of(const Choice& choice, int32_t m) const;
    void append_steps(int32_t s, int32_t t, int32_t m, std::vector<ChainStep>& steps) const;
    int32_t rounded_up(Bytes bytes) const;
    size_t at(int32_t s, int32_t t) const {
        return (static_cast<size_t>(s) * blocks_ + t - 1) * (static_cast<size_t>(units_) + 1);
    }
    const double* value(int32_t s, int32_t t) const { return &values_[at(s, t)]; }

    const Chain chain_;
    const int32_t blocks_, units_;
    Bytes least_base_ = 0, unit_bytes_ = 1;
    std::vector<double> values_;  // per range of blocks, per number of units
};

}  // namespace layermem::planning::nested
