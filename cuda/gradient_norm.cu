// square_sums, square_root: the L2 norm over all gradients, as gradient clipping needs it.
//   launch   square_sums as channel_sums over one column, grid (1, parts), block 256, once per gradient; then channel_sums
//            over all parts; square_root with grid 1, block 1
//   traffic  4 bytes per element: bound by memory
//   assumes  elements of a gradient below 2^31
//   order    parts of each gradient by its size alone, then all parts in the order of the net
//   source   Caffe src/caffe/solvers/sgd_solver.cpp, ClipGradients
#include "channel_sums.cuh"

using namespace lm;

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
