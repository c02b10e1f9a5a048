// The layout of weights that warpgroups multiply: consecutive tiles of B as in shared memory, with their swizzle
// (warpgroup.cuh).  weight_tiles.cu writes them, and a bulk copy loads one into the ring of warpgroup_gemm.cuh.
//
//   rows      [group][tile along outputs][stage of k][COLUMNS][DEPTH]     of conv_fprop: chunk j of row r at j ^ (r & 7)
//   columns   [group][tile along channels][tap][outputs / DEPTH][COLUMNS / PANEL][DEPTH][PANEL]     of conv_dgrad: chunk j
//             of row k at j ^ (k & 7); all its phases read the same tiles
//
// in bfloat16; a chunk is 16 bytes, a row 128.  Places beyond the operand are zero.
#pragma once
#include "half.cuh"

namespace lm {

struct WeightTile {
    static constexpr int COLUMNS = 256, DEPTH = 64, PANEL = 64;  // of B, k's of a stage, columns that lie together
    static constexpr int CHUNK = 8, ELEMENTS = COLUMNS * DEPTH, BYTES = 2 * ELEMENTS;
};

}  // namespace lm
