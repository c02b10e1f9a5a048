// Copies of rows and transpositions.
#pragma once
#include <cstdint>

#include "cpu/isa/isa.h"

namespace layermem::cpu {

struct StridedCopy {  // out[r * out_pitch + i] (+)= in[r * in_pitch + i],  r < rows, i < width;  pitches in floats
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
    int64_t in_pitch, out_pitch;  // floats from one i to the next of in, from one j to the next of out
};

struct CopyKernels {
    void (*copy_rows)(const StridedCopy&, int64_t begin, int64_t end);  // rows [begin, end)
    void (*transpose)(const Transpose&, int64_t image, int64_t begin,
                      int64_t end);  // rows of an image; contiguous ones
};
LAYERMEM_KERNEL_TABLE(CopyKernels, copy_kernels)

}  // namespace layermem::cpu
