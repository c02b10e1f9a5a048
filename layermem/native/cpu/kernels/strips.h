// Rows of dy, brought together for the tiles of an OuterBlock.
#pragma once
#include <cstring>

#include "cpu/kernels/stored.h"
#include "cpu/microkernels/gemm.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {

constexpr int64_t kStripFloats = kMaxPairs * kStripRows;  // from one strip to the next

constexpr int64_t strips_floats(int64_t columns) { return ceil_div(columns, kStripRows) * kStripFloats; }

// strips [ceil_div(columns, kStripRows)][kMaxPairs][kStripRows] = the first `columns` floats of `rows` rows of dy.
// A tile reads few floats of each row: those of neighbouring rows lie on neighbouring cache lines here.
inline void pack_strips(float* strips, const float* dy, int64_t rows, int64_t pitch, int64_t columns,
                        const Conversion& convert = Conversion(Storage::fp32)) {
    const int64_t whole = columns / kStripRows * kStripRows;
    for (int64_t row = 0; row < rows; ++row, strips += kStripRows) {
        float* to = strips;
        for (int64_t i = 0; i < whole; i += kStripRows, to += kStripFloats)
            convert.copy(to, dy, row * pitch + i, kStripRows);
        convert.copy(to, dy, row * pitch + whole, columns - whole);
    }
}

}  // namespace layermem::cpu
