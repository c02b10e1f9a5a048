// Rows of a table by index.
#pragma once
#include <cstdint>

#include "cpu/isa/isa.h"

namespace layermem::cpu {

struct GatherArgs {
    int64_t rows, width, count;  // table [rows][width], out [count][width]
    float* out;
    const float* table;
    const float* index;        // whole numbers as floats, [count]
    OrNull<const float> bias;  // [width]
};

struct ScatterArgs {
    int64_t rows, width, count;  // out [rows][width], x [count][width]
    float* out;
    const float* x;
    const float* index;
    bool accumulate;
};

struct GatherKernels {
    void (*gather)(const GatherArgs&, int64_t begin, int64_t end);    // rows of out [begin, end)
    void (*scatter)(const ScatterArgs&, int64_t begin, int64_t end);  // rows of out [begin, end)
};
LAYERMEM_KERNEL_TABLE(GatherKernels, gather_kernels)

}  // namespace layermem::cpu
