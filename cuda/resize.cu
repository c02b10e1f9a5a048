// Interp: the same channels on another grid of pixels, bilinear, corners on corners.
//   interp_forward   y [N,Ho,Wo,C] float written     x [N,H,W,C] float read
//   interp_backward  dx [N,H,W,C] float written or added to     dy [N,Ho,Wo,C] float read; a pixel gathers the outputs that read it
//   launch    one thread per V channels of the result: grid ceil(count / (256 V)), block 256
//   traffic   4|x| + 4|y| bytes, from L2 more: bound by memory
//   assumes   _v4: C a multiple of 4; each axis of y below 2^16, so that products of two sizes stay whole numbers
//   source    layermem/layers/resize.py, Resampling: y[i] lies at i (size - 1) / (out - 1) of `size` pixels from
//             `offset`
#include "common.cuh"

using namespace lm;

struct Resampling {
    int offset, size, out;
};

struct InterpArgs {
    float* y;        // or dx
    const float* x;  // or dy
    Resampling rows, columns;
    int height, width, channels;           // of x, or dx
    Divider by_runs, by_columns, by_rows;  // channels / V, and the grid that is written
    int count, accumulate;
};

// y[i] = (1 - t) x[low] + t x[high]
struct Tap {
    int low, high;
    float t;
};

LM_FN Tap tap_of(const Resampling& line, int i) {
    if (line.out == 1) return {line.offset, line.offset, 0.0f};
    const int whole = i * (line.size - 1), low = whole / (line.out - 1), rest = whole - low * (line.out - 1);
    return {line.offset + low, line.offset + low + (rest > 0 ? 1 : 0),
            static_cast<float>(rest) / static_cast<float>(line.out - 1)};
}

// Returns the share of y[i] that pixel `at` gets.
LM_FN float weight_of(const Resampling& line, int i, int at) {
    const Tap tap = tap_of(line, i);
    return (at == tap.low ? 1.0f - tap.t : 0.0f) + (at == tap.high ? tap.t : 0.0f);
}

// The places [begin, end) of y that may look at pixel `at`.
LM_FN int2 places_around(const Resampling& line, int at) {
    const int inside = at - line.offset;
    if (inside < 0 || inside >= line.size) return make_int2(0, 0);
    if (line.size == 1 || line.out == 1) return make_int2(0, line.out);
    const int begin = (inside - 1) * (line.out - 1) / (line.size - 1),
              end = (inside + 1) * (line.out - 1) / (line.size - 1);
    return make_int2(max(begin, 0), min(end + 1, line.out));
}

struct Place {
    int item, row, column, channel;
};

template <int V>
LM_FN Place place_of(const InterpArgs& p, unsigned i) {
    const int pixel = divide(i, p.by_runs), line = divide(pixel, p.by_columns), item = divide(line, p.by_rows);
    return {item, line - item * static_cast<int>(p.by_rows.divisor),
            pixel - line * static_cast<int>(p.by_columns.divisor), static_cast<int>(i - pixel * p.by_runs.divisor) * V};
}

template <int V>
LM_FN void interp_forward(const InterpArgs& p) {
    const unsigned i = blockIdx.x * 256u + threadIdx.x;
    if (i >= static_cast<unsigned>(p.count)) return;
    const Place at = place_of<V>(p, i);
    const Tap down = tap_of(p.rows, at.row), right = tap_of(p.columns, at.column);
    float corner[2][2][V], y[V];
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
        for (int s = 0; s < 2; ++s) {
            const int h = r ? down.high : down.low, w = s ? right.high : right.low;
            load<V>(corner[r][s], p.x + ((at.item * p.height + h) * p.width + w) * p.channels + at.channel);
        }
#pragma unroll
    for (int v = 0; v < V; ++v) {
        const float above = corner[0][0][v] * (1.0f - right.t) + corner[0][1][v] * right.t;
        const float below = corner[1][0][v] * (1.0f - right.t) + corner[1][1][v] * right.t;
        y[v] = above * (1.0f - down.t) + below * down.t;
    }
    store<V>(p.y + i * V, y);
}

template <int V>
LM_FN void interp_backward(const InterpArgs& p) {
    const unsigned i = blockIdx.x * 256u + threadIdx.x;
    if (i >= static_cast<unsigned>(p.count)) return;
    const Place at = place_of<V>(p, i);
    const int2 rows = places_around(p.rows, at.row), columns = places_around(p.columns, at.column);
    float sum[V] = {};
    for (int row = rows.x; row < rows.y; ++row) {
        const float down = weight_of(p.rows, row, at.row);
        if (down == 0.0f) continue;
        for (int column = columns.x; column < columns.y; ++column) {
            const float weight = down * weight_of(p.columns, column, at.column);
            float dy[V];
            load<V>(dy, p.x + ((at.item * p.rows.out + row) * p.columns.out + column) * p.channels + at.channel);
#pragma unroll
            for (int v = 0; v < V; ++v) sum[v] += weight * dy[v];
        }
    }
    put<V>(p.y + i * V, sum, p.accumulate);
}

LM_KERNEL(interp_forward_v4, InterpArgs, p, 256) { interp_forward<4>(p); }
LM_KERNEL(interp_forward_v1, InterpArgs, p, 256) { interp_forward<1>(p); }
LM_KERNEL(interp_backward_v4, InterpArgs, p, 256) { interp_backward<4>(p); }
LM_KERNEL(interp_backward_v1, InterpArgs, p, 256) { interp_backward<1>(p); }
