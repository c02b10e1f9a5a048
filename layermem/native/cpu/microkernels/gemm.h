// Blocks of matrix products, the inner loops of convolution and inner product.  A driver cuts its product into blocks
// whose operands stay in cache; a microkernel cuts a block into tiles whose sums stay in registers.
#pragma once
#include <cstdint>

#include "cpu/isa/isa.h"

namespace layermem::cpu {

enum class Init { zero, bias, out };  // what a sum starts from: zero, the bias of its column, or the output's value

// out_rows[row][column + j] = init + sum over slices t and steps i < length of in_rows[t][row][i] * packed[t * length +
// i][j]
//
// A panel of packed columns is `vectors` registers wide.  Rows are given by pointer, so that any stride, padding or
// layout of pixels can be multiplied without copying it.
struct GemmBlock {
    const float* const* in_rows;  // [slices][pitch]; entries of [rows, pitch) point to any readable row
    int64_t pitch;
    const float* zero_row;  // stands for a row of zeros (padding): a tile whose rows all have it skips the slice
    int64_t slices, length;
    const float* packed;     // [slices * length][vectors * lanes]
    float* const* out_rows;  // [rows]; the panel begins at `column`
    int64_t rows, column;
    int vectors, last_lanes;  // registers of the panel, floats in use of its last one
    Init init;
    const float* bias;  // of the panel's first column, for Init::bias
    bool relu;          // negative results become 0
    // The floats that the driver reads next, `length` rows as wide as the panel: fetched into the second-level cache
    // while this block is computed.  Or null.  Only for blocks of one slice.
    const float* next;
    int64_t next_pitch;
    // Rows of a whole panel as they lie in memory, to be packed while the first tile is computed.  Or null.
    const float* unpacked;
    int64_t unpacked_pitch;
    float* to;  // packed
};

constexpr int64_t kMaxPairs = 96;   // most pairs of rows of an OuterBlock
constexpr int64_t kStripRows = 24;  // a multiple of every tile height of outer

// out[k * pitch + c] = init + sum over j < count of d[j][k] * x[j][c],  k < rows, c < columns.  Init::zero or out.
struct OuterBlock {
    const float* const* x;
    const float* const* d;
    int64_t count, rows, columns;  // count <= kMaxPairs
    int64_t d_strip;               // row k of d is d[j][k / kStripRows * d_strip + k % kStripRows]
    float* out;
    int64_t pitch;
    Init init;
    // Rows of x and of d, as they lie in memory, that the driver reads next: fetched into the second-level cache while
    // this block is computed.  [count] pointers each, or null.
    const float *const *next_x, *const *next_d;
};

// out[m * pitch + n] = init + sum over i < length of a[m * a_pitch + i] * b[n * b_pitch + i],  m < rows, n < columns.
struct DotBlock {
    const float* a;
    const float* b;
    int64_t a_pitch, b_pitch, length, rows, columns;
    float* out;
    int64_t pitch;
    Init init;
    const float* bias;  // [columns]
    bool relu;
    const float* next;  // b of the block that the driver multiplies next: fetched as that of a GemmBlock, or null
};

// out[m * pitch + c] = init + sum over j < depth of d[m * d_pitch + j] * w[j * w_pitch + c],  m < rows, c < columns.
// Each register of w is loaded once for all rows, so w may be read from memory in long lines.  Init::zero or out.
struct RankUpdateBlock {
    const float *d, *w;
    int64_t d_pitch, w_pitch, depth, rows, columns;
    float* out;
    int64_t pitch;
    Init init;
};

struct GemmKernels {
    int lanes;        // floats of a register
    int max_vectors;  // width of the widest panel of a GemmBlock, in registers

    void (*gemm)(const GemmBlock&);
    void (*outer)(const OuterBlock&);
    void (*dot)(const DotBlock&);
    void (*rank_update)(const RankUpdateBlock&);
    // out[i][j] = w[j * pitch + i]  for i < depth, j < columns; zeros up to `width` columns, a multiple of lanes
    void (*pack_columns)(float* out, const float* w, int64_t pitch, int64_t depth, int64_t columns, int64_t width);
    // out[i][j] = w[i * pitch + j]  likewise
    void (*pack_rows)(float* out, const float* w, int64_t pitch, int64_t depth, int64_t columns, int64_t width);
};
LAYERMEM_KERNEL_TABLE(GemmKernels, gemm_kernels)

constexpr int64_t kLineFloats = 16;   // of a cache line
constexpr int64_t kBlockRows = 96;    // most rows of one GemmBlock; a multiple of every tile height
constexpr int64_t kTileRows = 12;     // height of the tallest tile of a GemmBlock
constexpr int64_t kBlockDepth = 384;  // most reduction steps of one GemmBlock before sums go back to memory

}  // namespace layermem::cpu
