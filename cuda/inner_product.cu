// sum_parts: the sums of an inner product of few rows, whose depth was cut into parts, in the order of the parts, with
// the epilogue of conv_fprop.
//   y [rows][columns] float written     parts [rows][splits][columns] float read
//   sum_before  float read, laid out as y, or null: the sum of the parts before these; may be y
//   launch   one thread per V columns of a row: grid ceil(rows columns / (256 V)), block 256, no shared memory
//   traffic  4 (splits + 1) bytes per element, and 4 each for `sum_before` and a residual: bound by memory
//   assumes  parts below 2^31 elements; _v4: columns are a multiple of 4; a mask needs a multiple of 8
//   source   the parts of an inner product in layermem/backends/cuda/products/inner_parts.py
#include "conv.cuh"

using namespace lm;

constexpr int SUM_THREADS = 256;
constexpr int IN_FLIGHT = 8;  // parts that a thread loads before it adds the first of them

struct SumPartsArgs {
    float* y;
    const float* sum_before;
    const float* parts;
    Epilogue<float> epilogue;
    Divider by_columns;
    int count, splits;  // elements of y
};

// Adds a thread's parts to `sum`, the first at `parts` and each `columns` after the one before.
template <int V>
LM_FN void add_parts(float (&sum)[V], bool has_sum_before, const float* parts, int splits, int columns) {
    for (int first = 0; first < splits; first += IN_FLIGHT) {
        float next[IN_FLIGHT][V];
#pragma unroll
        for (int i = 0; i < IN_FLIGHT; ++i)
            if (first + i < splits) load<V>(next[i], parts + static_cast<long long>(first + i) * columns);
#pragma unroll
        for (int i = 0; i < IN_FLIGHT; ++i) {
            if (first + i >= splits) continue;
            const bool is_first = first + i == 0 && !has_sum_before;
#pragma unroll
            for (int v = 0; v < V; ++v) sum[v] = is_first ? next[i][v] : sum[v] + next[i][v];
        }
    }
}

template <int V>
LM_FN void sum_parts(const SumPartsArgs& p) {
    const unsigned at = (blockIdx.x * SUM_THREADS + threadIdx.x) * V, row = divide(at, p.by_columns);
    const int columns = static_cast<int>(p.by_columns.divisor), column = static_cast<int>(at) - row * columns;
    const bool inside = at < static_cast<unsigned>(p.count);
    const Epilogue<float>& epilogue = p.epilogue;
    float y[V] = {};
    unsigned bits = 0;
    if (inside) {
        float bias[V] = {}, residual[V] = {};
        if (epilogue.bias != nullptr) load<V>(bias, epilogue.bias + column);
        if (epilogue.residual != nullptr) load<V>(residual, epilogue.residual + at);
        if (p.sum_before != nullptr) load<V>(y, p.sum_before + at);
        add_parts<V>(y, p.sum_before != nullptr, p.parts + (static_cast<long long>(row) * p.splits * columns + column),
                     p.splits, columns);
#pragma unroll
        for (int v = 0; v < V; ++v) {
            if (epilogue.bias != nullptr) y[v] += bias[v];
            if (epilogue.residual != nullptr) y[v] = residual[v] + y[v];
            if (epilogue.relu) y[v] = positive(y[v]);
            if (y[v] > 0.0f) bits |= 1u << v;
        }
        store<V>(p.y + at, y);
    }
    if (V < 4 || epilogue.mask == nullptr) return;
    bits |= shuffle_xor(bits, 1) << V;  // the byte of two threads, in the first of them
    if (inside && threadIdx.x % 2 == 0) epilogue.mask[at / 8] = static_cast<unsigned char>(bits);
}
LM_KERNEL(sum_parts_v4, SumPartsArgs, p, SUM_THREADS) { sum_parts<4>(p); }
LM_KERNEL(sum_parts_v1, SumPartsArgs, p, SUM_THREADS) { sum_parts<1>(p); }
