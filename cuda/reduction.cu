// Sums over some axes of a blob, in any order of axes; and the largest along one.
//
// reduce_sum, reduce_sum_product, reduce_sum_absolute, reduce_sum_square: y[o] (+)= factor * sum over i of
// term(x[base(o) + place(i)]).  One block a sum, for sums that channel_sums cannot lay out as columns.
//   y [outputs] float written or added to     x, b float read
//   launch   grid min(outputs, 2^31 - 1), block 256
//   traffic  4 bytes per element and input, wherever the axes put them: bound by memory
//   assumes  elements below 2^31
//   order    thread t adds i = t, t + 256, ..; then lanes by halving distance, then warps
//   source   layermem/backends/reference/reduction.py
#include "channel_sums.cuh"
#include "strided_index.cuh"

using namespace lm;

struct ReduceSumArgs {
    float* y;
    const float* x;
    const float* b;  // for the product
    StridedIndex outer, inner;
    int terms;  // of a sum
    int accumulate;
    float factor;
};

template <class Term>
LM_FN void reduce_sum(const ReduceSumArgs& p, Term term) {
    LM_SHARED(float, lanes, [33]);
    const int base = strided_offset(blockIdx.x, p.outer);
    float sum = 0;
    for (int i = threadIdx.x; i < p.terms; i += 256) sum += term(base + strided_offset(i, p.inner));
    sum = block_sum(sum, lanes);
    if (threadIdx.x == 0) put(p.y + blockIdx.x, p.factor * sum, p.accumulate);
}

LM_KERNEL(reduce_sum, ReduceSumArgs, p, 256) {
    reduce_sum(p, [&](int at) { return p.x[at]; });
}
LM_KERNEL(reduce_sum_product, ReduceSumArgs, p, 256) {
    reduce_sum(p, [&](int at) { return p.x[at] * p.b[at]; });
}
LM_KERNEL(reduce_sum_absolute, ReduceSumArgs, p, 256) {
    reduce_sum(p, [&](int at) { return fabsf(p.x[at]); });
}
LM_KERNEL(reduce_sum_square, ReduceSumArgs, p, 256) {
    reduce_sum(p, [&](int at) { return p.x[at] * p.x[at]; });
}

// reduce_sum_backward: dx[i] (+)= factor dy[o(i)] times 1, sign x or 2 x: the gradient of such a sum.
//   dx [count] float written or added to     dy [outputs], x [count] float read
//   launch   one thread an element: grid ceil(count / 256), block 256
struct ReduceSumBackwardArgs {
    float* dx;
    const float* dy;
    const float* x;      // null for a plain sum
    StridedIndex outer;  // element of x -> its sum
    int count, accumulate;
    int squares;
    float factor;
};

LM_KERNEL(reduce_sum_backward, ReduceSumBackwardArgs, p, 256) {
    const unsigned i = blockIdx.x * 256u + threadIdx.x;
    if (i >= static_cast<unsigned>(p.count)) return;
    float slope = 1;
    if (p.x != nullptr) {
        const float x = p.x[i];
        slope = p.squares ? 2.0f * x : x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x;
    }
    put(p.dx + i, p.factor * p.dy[strided_offset(i, p.outer)] * slope, p.accumulate);
}

// argmax: the `top` largest of each line, the largest first; of equal ones the one with the higher index first.
//   places, values [lines][top] float written through `out`, either may be null
//   launch   one warp a line: grid ceil(lines / 8), block 256
//   assumes  a NaN counts as larger than everything
struct ArgmaxArgs {
    float* places;
    float* values;
    const float* x;
    // number of a line -> its first element; number in a line -> distance; line -> place in out
    StridedIndex lines, line, out;
    int count, size, top, out_step;
};

// Floats in their order as signed integers; -0 equals 0.
LM_FN int ordered(float x) {
    if (x != x) return 0x7fffffff;
    const int bits = __float_as_int(x + 0.0f);
    return bits ^ (bits >> 31 & 0x7fffffff);
}

LM_KERNEL(argmax, ArgmaxArgs, p, 256) {
    const int line = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (line >= p.count) return;
    const float* x = p.x + strided_offset(line, p.lines);
    const int out = strided_offset(line, p.out);
    // The last result: all others are smaller, or further in front.
    int last_key = 0x7fffffff, last_place = 0x7fffffff;
    for (int k = 0; k < p.top; ++k) {
        int key = -0x7fffffff - 1, place = -1;
        for (int i = lane; i < p.size; i += 32) {
            const int mine = ordered(x[strided_offset(i, p.line)]);
            const bool left = mine < last_key || (mine == last_key && i < last_place);
            if (left && mine >= key) {
                key = mine;
                place = i;
            }
        }
#pragma unroll
        for (int distance = 16; distance > 0; distance /= 2) {
            const int other = shuffle_xor(key, distance), at = shuffle_xor(place, distance);
            if (other > key || (other == key && at > place)) {
                key = other;
                place = at;
            }
        }
        last_key = key;
        last_place = place;
        if (lane == 0) {
            if (p.places != nullptr) p.places[out + k * p.out_step] = static_cast<float>(place);
            if (p.values != nullptr) p.values[out + k * p.out_step] = x[strided_offset(place, p.line)];
        }
    }
}
