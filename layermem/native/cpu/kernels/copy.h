// Strided copies and transpositions, alone or added to what is there.  They serve Concat, Slice, Split, Tile, Crop,
// Reshape and changes between Caffe's axis order and the channels-last order of stored blobs.
#pragma once
#include <vector>

#include "cpu/kernels/launch.h"
#include "cpu/microkernels/copy.h"

namespace layermem::cpu {

Launch copy_rows(int64_t rows, int64_t width, float* out, int64_t out_pitch, const float* x, int64_t x_pitch,
                 bool accumulate);

// Copies rows of bytes, such as elements in 16 bits; pitches are in bytes.  The caller guarantees that the rows of
// `out` overlap neither each other nor those of `in`.
Launch copy_bytes(int64_t rows, int64_t width, char* out, int64_t out_pitch, const char* x, int64_t x_pitch);

Launch transpose(int64_t n, int64_t rows, int64_t columns, float* out, const float* x, bool accumulate);

// out[sum of index * out_strides] (+)= x[sum of index * x_strides], for every index below `shape`; strides in floats
Launch copy_block(const std::vector<int64_t>& shape, float* out, const std::vector<int64_t>& out_strides,
                  const float* x, const std::vector<int64_t>& x_strides, bool accumulate);

}  // namespace layermem::cpu
