// Sums per channel over everything else: how biases, scales and batch statistics come about.
//
// The blob is [outer][columns][inner] in memory (inner is 1 for channels-last); row r of it is place r % inner of block
// r / inner, so there are outer x inner rows of `columns` elements.
// A block takes `width` x V columns, width = 1, 2, .. 32 lanes of a row, and every 256/width-th row of its part; its
// lanes meet in shared memory in a tree.  With several parts (gridDim.y) the parts' sums are rows of a matrix
// themselves, to be summed by channel_sums.  So the order of additions depends on the shape alone.
#pragma once
#include "common.cuh"

namespace lm {

constexpr int COLUMN_THREADS = 256;

struct Columns {
    int rows, columns;  // columns a multiple of V
    int pitch;          // columns in memory, of which these are the first
    int width;          // lanes across the columns
    int rows_each;      // rows of a part
    Divider by_inner;
};

// Where (row, column) lies.
LM_FN int offset_of(const Columns& at, int row, int column) {
    const int block = divide(row, at.by_inner), inner = at.by_inner.divisor;
    return (block * at.pitch + column) * inner + row - block * inner;
}

// V is 4 only where inner is 1.  Sums K terms per element: `term(row, column, values)` fills values[K][V] for V
// columns.  At the end finish(column, sums) is called for the V columns by one thread each.
template <int K, int V, class Term, class Finish>
LM_FN void sum_columns(const Columns& at, Term term, Finish finish) {
    LM_SHARED(float, lanes, [COLUMN_THREADS][K * V]);
    const int thread = threadIdx.x, lane = thread % at.width, line = thread / at.width,
              lines = COLUMN_THREADS / at.width;
    const int column = (blockIdx.x * at.width + lane) * V;
    const int begin = blockIdx.y * at.rows_each, end = min(begin + at.rows_each, at.rows);
    float sum[K][V] = {};
    if (column < at.columns) {
        for (int row = begin + line; row < end; row += lines) {
            float values[K][V];
            term(row, column, values);
#pragma unroll
            for (int k = 0; k < K; ++k)
#pragma unroll
                for (int v = 0; v < V; ++v) sum[k][v] += values[k][v];
        }
    }
#pragma unroll
    for (int i = 0; i < K * V; ++i) lanes[thread][i] = sum[i / V][i % V];
    for (int half = lines / 2; half > 0; half /= 2) {
        block_sync();
        if (line < half) {
#pragma unroll
            for (int i = 0; i < K * V; ++i) lanes[thread][i] += lanes[thread + half * at.width][i];
        }
    }
    if (line == 0 && column < at.columns) {
#pragma unroll
        for (int i = 0; i < K * V; ++i) sum[i / V][i % V] = lanes[thread][i];
        finish(column, sum);
    }
}

}  // namespace lm
