// Sums per channel over all other axes, for biases, scales and batch statistics.
//
// The blob is [outer][columns][inner] in memory (inner is 1 for channels-last); row r is place r % inner of block r /
// inner, so there are outer x inner rows of `columns` elements. A block takes `width` x V columns, width = 1, 2, .. 32
// lanes of a row, and every 256/width-th row of its part; its lanes are added in shared memory in a tree.  With several
// parts (gridDim.y) the parts' sums are rows of a matrix, to be summed by channel_sums.  So the order of additions
// depends only on the shape.
//
// A thread loads IN_FLIGHT values of V floats before it uses the first, to hide the latency of memory.
//
// A slice of the batch has only `here` of the rows, from row `first` on, and the grid has the parts of these rows.  A
// part that a slice does not finish leaves the sums of its threads in `open`, and the next slice continues from there,
// so that every addition is one of the whole batch.
#pragma once
#include "element.cuh"

namespace lm {

constexpr int COLUMN_THREADS = 256;
template <int V>
constexpr int IN_FLIGHT = V == 4 ? 4 : 8;  // loads of a thread, of 16 or of 4 bytes

struct Columns {
    float* open;        // [blocks across][256][K V]: of the part that ends in another slice
    int rows, columns;  // columns a multiple of V
    int pitch;          // columns in memory, of which these are the first
    int width;          // lanes across the columns
    int rows_each;      // rows of a part
    int first, here, first_part;
    Divider by_inner;
};

// Returns the part of the sums that this block computes.
LM_FN int part_of(const Columns& at) { return at.first_part + static_cast<int>(blockIdx.y); }

// Returns the first of the V columns that this thread sums.
template <int V>
LM_FN int column_of(const Columns& at) {
    return (static_cast<int>(blockIdx.x) * at.width + static_cast<int>(threadIdx.x) % at.width) * V;
}

// Returns the offset of (row, column), with row counted from the first of this slice.  V is 4 only if inner is 1.
template <int V>
LM_FN int offset_of(const Columns& at, unsigned row, int column) {
    if constexpr (V == 4) return static_cast<int>(row) * at.pitch + column;
    const int block = divide(row, at.by_inner), inner = at.by_inner.divisor;
    return (block * at.pitch + column) * inner + static_cast<int>(row) - block * inner;
}

// Calls use(offset, in) for the rows first, first + step, .. before end, in this order: in[k] are the V columns of x[k].
template <int V, int INPUTS, class T, class Use>
LM_FN void visit_rows(const Columns& at, const T* const (&x)[INPUTS], int first, int end, int step, int column,
                      Use use) {
    constexpr int ROWS = IN_FLIGHT<V> / INPUTS > 0 ? IN_FLIGHT<V> / INPUTS : 1;
    const unsigned stop = static_cast<unsigned>(end);  // unsigned: rows after the last may pass 2^31
#pragma unroll 1
    for (unsigned row = static_cast<unsigned>(first); row < stop; row += ROWS * step) {
        Elements<V, T> in[ROWS][INPUTS];
        int offset[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            offset[r] = offset_of<V>(at, row + r * step, column);
            if (row + r * step >= stop) continue;
#pragma unroll
            for (int k = 0; k < INPUTS; ++k) in[r][k].fetch(x[k] + offset[r]);
        }
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            if (row + r * step >= stop) continue;
            float values[INPUTS][V];
#pragma unroll
            for (int k = 0; k < INPUTS; ++k) in[r][k].widen(values[k]);
            use(offset[r], values);
        }
    }
}

// Sums K terms per element: term(offset, in, values) fills values[K][V] from the V columns of each x at that offset.
// At the end of a part finish(column, sums) is called for the V columns by one thread each.
template <int K, int V, int INPUTS, class T, class Term, class Finish>
LM_FN void sum_columns(const Columns& at, const T* const (&x)[INPUTS], Term term, Finish finish) {
    LM_SHARED(float, lanes, [COLUMN_THREADS][K * V]);
    const int thread = threadIdx.x, line = thread / at.width, lines = COLUMN_THREADS / at.width;
    const int column = column_of<V>(at);
    const int begin = part_of(at) * at.rows_each - at.first, end = min(begin + at.rows_each, at.rows - at.first);
    const int own = (static_cast<int>(blockIdx.x) * COLUMN_THREADS + thread) * (K * V);  // in `open`
    float sum[K][V] = {};
    int row = begin + line;
    if (begin < 0) {  // an earlier slice began
#pragma unroll
        for (int i = 0; i < K * V; ++i) sum[i / V][i % V] = at.open[own + i];
        if (row < 0) row += (lines - 1 - row) / lines * lines;
    }
    if (column < at.columns)
        visit_rows<V>(at, x, row, min(end, at.here), lines, column, [&](int offset, const float (&in)[INPUTS][V]) {
            float values[K][V];
            term(offset, in, values);
#pragma unroll
            for (int k = 0; k < K; ++k)
#pragma unroll
                for (int v = 0; v < V; ++v) sum[k][v] += values[k][v];
        });
    if (end > at.here) {  // a later slice goes on
#pragma unroll
        for (int i = 0; i < K * V; ++i) at.open[own + i] = sum[i / V][i % V];
        return;
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
