// Moves of memory: strided copies, transposes, and both with addition.
#pragma once
#include <cstdint>
#include <vector>

#include "launch.h"

namespace layermem::cpu {

struct Rows {  // out[r * out_pitch + i] (+)= in[r * in_pitch + i],  i < width
    float* out;
    const float* in;
    int64_t rows, width, out_pitch, in_pitch;
    bool accumulate;
};

struct Transpose {  // out[n][j][i] (+)= in[n][i][j],  i < rows, j < columns
    float* out;
    const float* in;
    int64_t n, rows, columns;
    bool accumulate;
};

Launch copy_rows(const Rows&);
Launch transpose(const Transpose&);
// out at sum of index * out_stride (+)= in at sum of index * in_stride, for every index below `shape`; strides in floats
Launch copy_block(float* out, const float* in, std::vector<int64_t> shape, std::vector<int64_t> out_strides,
                  std::vector<int64_t> in_strides, bool accumulate);

}  // namespace layermem::cpu
