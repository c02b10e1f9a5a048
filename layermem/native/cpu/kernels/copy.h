// Strided copies and transpositions, alone or added to what is there.  They serve Concat, Slice, Split, Tile, Crop,
// Reshape and changes between Caffe's axis order and the channels-last order of stored blobs.
#pragma once
#include <vector>

#include "cpu/kernels/launch.h"
#include "cpu/microkernels/copy.h"

namespace layermem::cpu {

Launch copy_rows(const StridedCopy& args);

// Rows of bytes as they are, as of elements in 16 bits; pitches in bytes.  The caller guarantees that the rows of `out`
// overlap neither each other nor those of `in`.
struct ByteRows {
    char* out;
    const char* in;
    int64_t rows, width, out_pitch, in_pitch;
};
Launch copy_bytes(const ByteRows& args);

Launch transpose(int64_t n, int64_t rows, int64_t columns, float* out, const float* in, bool accumulate);

// out[sum of index * out_strides] (+)= in[sum of index * in_strides], for every index below `shape`; strides in floats
Launch copy_block(float* out, const float* in, const std::vector<int64_t>& shape,
                  const std::vector<int64_t>& out_strides, const std::vector<int64_t>& in_strides, bool accumulate);

}  // namespace layermem::cpu
