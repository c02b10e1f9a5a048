// An operand that a product reads from a patch of the image in shared memory (conv_patch.cuh), not from its stage.
#pragma once
#include "implicit_gemm.cuh"

namespace lm {

// Element k of a row lies in shared memory at the row's place times x plus y of its TapPlace, in bytes; x is 0 for
// zeros, otherwise 1.
using TapPlace = int2;

// Returns the entries of a sum over `depth` of k, including those that a product reads ahead.
LM_FN int tap_entries(int depth) { return (depth + DEPTH - 1) / DEPTH * DEPTH + DEPTH; }

// Rows of A for a product that reads them from a patch (conv_patch.cuh): ROWS of a lane.
template <int ROWS>
struct PatchRows {
    static constexpr bool READS_PATCH = true;

    const float* shared;
    const TapPlace* taps;  // of the stage
    int places[ROWS];

    template <class PlaceOf>
    LM_MEMBER void begin(const float* shared_, const TapPlace* taps_, PlaceOf place_of) {
        shared = shared_, taps = taps_;
#pragma unroll
        for (int i = 0; i < ROWS; ++i) places[i] = place_of(i);
    }

    LM_MEMBER void advance() { taps += DEPTH; }

    LM_MEMBER float at(int row, const TapPlace& tap) const {
        const int place = places[row] * tap.x + tap.y;
        return *reinterpret_cast<const float*>(reinterpret_cast<const char*>(shared) + place);
    }
};

// Used by products that read A from the stage.
struct NoPatch {
    static constexpr bool READS_PATCH = false;
};

}  // namespace lm
