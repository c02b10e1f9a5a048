// Rows of a table by index: gathered forward, added to the table's gradient backward.
//   table [rows][width], y [count][width] float     index [count] float, whole numbers; others are reported
//   traffic  8 bytes per element of y, 4 more per element of the table backward: bound by memory
//   assumes  elements below 2^31; _v4: width is a multiple of 4
//   source   Caffe embed_layer.cu and batch_reindex_layer.cu, without their atomics
#include "labels.cuh"

using namespace lm;

// gather_rows: y[i] = table[index[i]] + bias; an index out of range is reported, and reads zeros.
//   launch   one thread per V elements of y, grid ceil(count width / (256 V)), block 256
struct GatherArgs {
    float* y;
    const float* table;
    const float* bias;  // [width], or null
    Labels index;
    Divider by_width;
    int elements;  // of y
};

template <int V>
LM_FN void gather_rows(const GatherArgs& p) {
    const unsigned first = (blockIdx.x * 256u + threadIdx.x) * V;
    if (first >= static_cast<unsigned>(p.elements)) return;
    const int width = p.by_width.divisor, i = divide(first, p.by_width), column = static_cast<int>(first) - i * width;
    const int row = label_at(p.index, i);
    float values[V] = {};
    if (row >= 0) load<V>(values, p.table + row * width + column);
    if (p.bias != nullptr) {
        float bias[V];
        load<V>(bias, p.bias + column);
#pragma unroll
        for (int v = 0; v < V; ++v) values[v] += bias[v];
    }
    store<V>(p.y + first, values);
}
LM_KERNEL(gather_rows_v4, GatherArgs, p, 256) { gather_rows<4>(p); }
LM_KERNEL(gather_rows_v1, GatherArgs, p, 256) { gather_rows<1>(p); }

// scatter_rows: table[r] (+)= the sum of y[i] over the i with index[i] == r, i rising.
//   launch   a warp per row and 1024 columns: grid (ceil(rows/8), ceil(width/1024)), block 256.  It reads 32 indices at
//            a time, and each lane adds to its own columns
struct ScatterArgs {
    float* table;
    const float* y;
    Labels index;
    int rows, width, count, accumulate;
};

constexpr int COLUMNS = 1024;  // of a warp

LM_KERNEL(scatter_rows, ScatterArgs, p, 256) {
    const int lane = threadIdx.x % WARP, row = blockIdx.x * 8 + threadIdx.x / WARP;
    if (row >= p.rows) return;
    const int begin = blockIdx.y * COLUMNS + lane, end = min(static_cast<int>(blockIdx.y + 1) * COLUMNS, p.width);
    float* table = p.table + row * p.width;
    if (!p.accumulate)
        for (int c = begin; c < end; c += WARP) table[c] = 0.0f;
    for (int first = 0; first < p.count; first += WARP) {
        const int i = first + lane;
        unsigned own = lm::ballot(i < p.count && label_at(p.index, i) == row);
        for (; own != 0; own &= own - 1) {
            const float* y = p.y + (first + __ffs(static_cast<int>(own)) - 1) * p.width;
            for (int c = begin; c < end; c += WARP) table[c] += y[c];
        }
    }
}
