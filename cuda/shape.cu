// Moving elements: runs, transpositions, other axes over the same elements, parts of a blob.
//   every kernel   y [count] float, or 16 bits (element.cuh) where its name ends in the type's, written or added to; x read
//   launch         copy_runs, sum_runs, reorder, crop, permute: one thread per V elements of y: grid
//                  ceil(count / (256 V)), block 256
//   traffic        8 bytes per element, 12 where it is added: bound by memory
//   assumes        _v4: runs, pitches and addresses are multiples of 16 bytes
//   source         layermem/backends/reference/shape.py and resize.py (Crop)
#include "element.cuh"

using namespace lm;

constexpr int THREADS = 256;

template <int V>
LM_FN int my_first() {
    return static_cast<int>((blockIdx.x * THREADS + threadIdx.x) * V);
}

// copy_runs: y[o, i] = x[o, i] for runs of `run` elements, o-th at o y_pitch and o x_pitch.  Concat, Slice, Tile.
template <class T>
struct RunsArgs {
    T* y;
    const T* x;
    Divider by_run;
    int count, y_pitch, x_pitch;  // count: outer * run
    int accumulate;
};

template <int V, class T>
LM_FN void copy_runs_of(const RunsArgs<T>& p) {
    const int first = my_first<V>();
    if (static_cast<unsigned>(first) >= static_cast<unsigned>(p.count)) return;
    const int outer = divide(first, p.by_run), i = first - outer * static_cast<int>(p.by_run.divisor);
    float values[V];
    load<V>(values, p.x + outer * p.x_pitch + i);
    put<V>(p.y + outer * p.y_pitch + i, values, p.accumulate);
}
LM_KERNEL_OF_ELEMENTS(copy_runs_v4, RunsArgs, THREADS, copy_runs_of<4>)
LM_KERNEL_OF_ELEMENTS(copy_runs_v1, RunsArgs, THREADS, copy_runs_of<1>)

// sum_runs: y[o, i] = sum over t of x[o, t, i], t rising.  Tile backward.
struct SumRunsArgs {
    float* y;
    const float* x;
    Divider by_run;
    int count, terms, accumulate;
};

template <int V>
LM_FN void sum_runs(const SumRunsArgs& p) {
    const int first = my_first<V>(), run = p.by_run.divisor;
    if (static_cast<unsigned>(first) >= static_cast<unsigned>(p.count)) return;
    const int outer = divide(first, p.by_run);
    const float* x = p.x + outer * run * p.terms + (first - outer * run);
    float sum[V] = {};
    for (int t = 0; t < p.terms; ++t) {
        float values[V];
        load<V>(values, x + t * run);
#pragma unroll
        for (int v = 0; v < V; ++v) sum[v] += values[v];
    }
    put<V>(p.y + first, sum, p.accumulate);
}
LM_KERNEL(sum_runs_v4, SumRunsArgs, p, THREADS) { sum_runs<4>(p); }
LM_KERNEL(sum_runs_v1, SumRunsArgs, p, THREADS) { sum_runs<1>(p); }

// transpose: y[n, j, i] = x[n, i, j]: channels-first to channels-last and back, item by item.
//   y [items][columns][rows] written     x [items][rows][columns] read
//   launch   one block per 32 x 32 tile: grid (ceil(columns/32), ceil(rows/32), min(items, 65535)), block 256
//            (32 across, 8 down); through shared memory, so that both sides move whole lines
//   x may lie in pinned host memory: then this is the copy across the link as well
template <class T>
struct TransposeArgs {
    T* y;
    const T* x;
    int items, rows, columns;  // of x
    int accumulate;
};

template <class T>
LM_FN void transpose_of(const TransposeArgs<T>& p) {
    LM_SHARED(float, tile, [32][33]);
    const int across = threadIdx.x % 32, down = threadIdx.x / 32;
    const int row0 = blockIdx.y * 32, column0 = blockIdx.x * 32;
    for (int item = blockIdx.z; item < p.items; item += gridDim.z) {
        const T* x = p.x + static_cast<long long>(item) * p.rows * p.columns;
        T* y = p.y + static_cast<long long>(item) * p.rows * p.columns;
        for (int i = down; i < 32; i += THREADS / 32)
            if (row0 + i < p.rows && column0 + across < p.columns)
                tile[i][across] = widened(x[(row0 + i) * p.columns + column0 + across]);
        block_sync();
        for (int i = down; i < 32; i += THREADS / 32)
            if (column0 + i < p.columns && row0 + across < p.rows)
                put(y + (column0 + i) * p.rows + row0 + across, tile[across][i], p.accumulate);
        block_sync();
    }
}
LM_KERNEL_OF_ELEMENTS(transpose, TransposeArgs, THREADS, transpose_of)

// reorder: the elements of x in Caffe's order under other axes, where both sides have several channels and several
// places.
template <class T>
struct ReorderArgs {
    T* y;
    const T* x;
    Divider y_item, y_channels, x_item, x_places;  // an item's elements, and its channels or places
    int count, accumulate;
};

template <class T>
LM_FN void reorder_of(const ReorderArgs<T>& p) {
    const int at = my_first<1>();
    if (static_cast<unsigned>(at) >= static_cast<unsigned>(p.count)) return;
    const int y_item = p.y_item.divisor, y_channels = p.y_channels.divisor, y_places = y_item / y_channels;
    const int item = divide(at, p.y_item), rest = at - item * y_item;
    const int place = divide(rest, p.y_channels), channel = rest - place * y_channels;
    const int e = item * y_item + channel * y_places + place;  // in Caffe's order
    const int x_item = p.x_item.divisor, x_places = p.x_places.divisor, x_channels = x_item / x_places;
    const int n = divide(e, p.x_item), left = e - n * x_item;
    const int c = divide(left, p.x_places), i = left - c * x_places;
    put(p.y + at, widened(p.x[n * x_item + i * x_channels + c]), p.accumulate);
}
LM_KERNEL_OF_ELEMENTS(reorder, ReorderArgs, THREADS, reorder_of)

// crop: y[i] = x[i + shift] in four axes, in the order of memory; zero outside x.  Crop forward, and backward with
// negative shifts.
struct CropArgs {
    float* y;
    const float* x;
    Divider y1, y2, y3;  // sizes of the last three axes of y
    int x0, x1, x2, x3;  // sizes of x
    int shift0, shift1, shift2, shift3;
    int count, accumulate;
};

template <int V>
LM_FN void crop(const CropArgs& p) {
    const int first = my_first<V>();
    if (static_cast<unsigned>(first) >= static_cast<unsigned>(p.count)) return;
    const int at2 = divide(first, p.y3), at1 = divide(at2, p.y2), at0 = divide(at1, p.y1);
    const int i3 = first - at2 * static_cast<int>(p.y3.divisor) + p.shift3;
    const int i2 = at2 - at1 * static_cast<int>(p.y2.divisor) + p.shift2;
    const int i1 = at1 - at0 * static_cast<int>(p.y1.divisor) + p.shift1, i0 = at0 + p.shift0;
    const bool inside = static_cast<unsigned>(i0) < static_cast<unsigned>(p.x0) &&
                        static_cast<unsigned>(i1) < static_cast<unsigned>(p.x1) &&
                        static_cast<unsigned>(i2) < static_cast<unsigned>(p.x2) &&
                        static_cast<unsigned>(i3) < static_cast<unsigned>(p.x3);
    float values[V] = {};
    if (inside) load<V>(values, p.x + ((i0 * p.x1 + i1) * p.x2 + i2) * p.x3 + i3);
    put<V>(p.y + first, values, p.accumulate);
}
LM_KERNEL(crop_v4, CropArgs, p, THREADS) { crop<4>(p); }
LM_KERNEL(crop_v1, CropArgs, p, THREADS) { crop<1>(p); }

// permute: y[i] = x[the sum of index x stride], i counted through six axes in the order of y's memory.  Permute.
struct PermuteArgs {
    float* y;
    const float* x;
    Divider s1, s2, s3, s4, s5;  // sizes of all axes but the first
    int stride0, stride1, stride2, stride3, stride4, stride5;
    int count, accumulate;
};

// Divides i by a size, and adds the way along that axis to `at`.
LM_FN int step_along(int i, const Divider& size, int stride, int& at) {
    const int rest = divide(i, size);
    at += (i - rest * static_cast<int>(size.divisor)) * stride;
    return rest;
}

LM_KERNEL(permute, PermuteArgs, p, THREADS) {
    const int first = my_first<1>();
    if (static_cast<unsigned>(first) >= static_cast<unsigned>(p.count)) return;
    int at = 0;
    int i = step_along(first, p.s5, p.stride5, at);
    i = step_along(i, p.s4, p.stride4, at);
    i = step_along(i, p.s3, p.stride3, at);
    i = step_along(i, p.s2, p.stride2, at);
    i = step_along(i, p.s1, p.stride1, at);
    put(p.y + first, p.x[at + i * p.stride0], p.accumulate);
}
