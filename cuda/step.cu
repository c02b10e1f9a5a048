// What a step needs beside layers: constants, and the norm of all gradients.
#include "channels.cuh"

using namespace lm;

// fill: y = value.
//   y [count] float written
//   launch   grid ceil(count / 1024), block 256
//   traffic  4 bytes per element: bound by memory
//   assumes  y aligned to 16 bytes
//   source   layermem/runtime/reference/step.py
struct FillArgs {
    float* y;
    int count;
    float value;
};

LM_KERNEL(fill, FillArgs, p, 256) {
    const unsigned first = 4u * (blockIdx.x * 256u + threadIdx.x), count = static_cast<unsigned>(p.count);
    const float values[4] = {p.value, p.value, p.value, p.value};
    if (first + 4 <= count)
        store<4>(p.y + first, values);
    else
        for (unsigned i = first; i < count; ++i) p.y[i] = p.value;
}

// square_sums: parts[j] = sum of x^2 over part j of one array.
//   launch   as channel_sums over one column: grid (1, parts), block 256
struct SquareSumsArgs {
    float* parts;
    const float* x;
    Columns at;
};

LM_KERNEL(square_sums, SquareSumsArgs, p, COLUMN_THREADS) {
    sum_columns<1, 1>(
        p.at, [&](int row, int, float(&values)[1][1]) { values[0][0] = p.x[row] * p.x[row]; },
        [&](int, float(&sums)[1][1]) { p.parts[blockIdx.y] = sums[0][0]; });
}

// square_root: y = sqrt(x), one number.  launch   grid 1, block 1
struct SquareRootArgs {
    float* y;
    const float* x;
};

LM_KERNEL(square_root, SquareRootArgs, p, 1) { *p.y = sqrtf(*p.x); }
