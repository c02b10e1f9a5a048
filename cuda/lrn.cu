// LRN: y = x s^-beta, s = k + alpha * (sum of squares around x);
// dx = dy s^-beta - 2 alpha beta x sum_around(dy x s^(-beta-1)).
//   x, y, dy, dx [N,H,W,C] float, or 16 bits (element.cuh) in kernels whose names end in the type's
//   lrn_across_*      across channels: a block takes `pixels` whole pixels into shared memory, so that outputs may lie on inputs
//     launch   grid ceil(N H W / pixels), block 256, dynamic shared 4 pixels C bytes forward, 12 backward
//     assumes  C <= 4096
//   lrn_within_*      within a channel: a thread takes V elements and looks at the size x size pixels around
//     launch   grid ceil(count / (256 V)), block 256; backward in two kernels, through `ratio` [N,H,W,C] in the
//              workspace
//   traffic  8 bytes per element forward, 12 backward, half in 16 bits; roots or a power each: bound by memory, nearly by arithmetic
//   assumes  _v4: C a multiple of 4, buffers aligned to four elements
//   order    a sum goes from the first channel to the last, and from row to row
//   source   Caffe lrn_layer.cu, which keeps s; here it is recomputed
#include "element.cuh"

namespace lm {

template <class T>
struct LrnArgs {
    T* y;  // or dx
    const T* x;
    const T* dy;   // backward
    float* ratio;  // dy x s^(-beta-1), of the backward within a channel
    int pixels_all, pixels, height, width, channels;
    int size;
    Divider by_channels, by_width, by_height;
    float alpha, k, beta;  // alpha: Caffe's, over the number of elements summed
    int accumulate;
};

// Returns s^-beta; by roots if beta has Caffe's default, because roots round in the same way on a GPU and the emulator.
LM_FN float inverse_power(float s, float beta) {
    if (beta != 0.75f) return powf(s, -beta);
    const float root = 1.0f / sqrtf(s);
    return root * sqrtf(root);
}

// ---- across channels ------------------------------------------------------------------------------------------------

struct Pixels {
    int first, count;  // elements of the block's pixels
};

template <class T>
LM_FN Pixels my_pixels(const LrnArgs<T>& p) {
    const int first = blockIdx.x * p.pixels, end = min(first + p.pixels, p.pixels_all);
    return {first * p.channels, (end - first) * p.channels};
}

// Calls visit(i) for each V elements of the block's pixels that are this thread's.
template <int V, class Visit>
LM_FN void visit_mine(const Pixels& mine, Visit visit) {
    for (int i = static_cast<int>(threadIdx.x) * V; i < mine.count; i += 256 * V) visit(i);
}

// V elements into shared memory, as floats.
template <int V>
LM_FN void stage(float* shared, const float* from) {
    async_copy<4 * V>(shared, from);
}

template <int V, class T>
LM_FN void stage(float* shared, const T* from) {
    float values[V];
    load<V>(values, from);
    store<V>(shared, values);
}

// Sums over the channels around each of the V elements from i on in `shared`: of squares, or of the values.
template <int V, bool SQUARES, class T>
LM_FN void sum_across(const LrnArgs<T>& p, const float* shared, int i, float (&sum)[V]) {
    const int c = i - divide(i, p.by_channels) * p.channels, half = p.size / 2, reach = (half + V - 1) / V * V;
#pragma unroll
    for (int v = 0; v < V; ++v) sum[v] = 0.0f;
    for (int d = -reach; d <= reach; d += V) {
        if (c + d < 0 || c + d >= p.channels) continue;
        float values[V];
        load<V>(values, shared + i + d);
#pragma unroll
        for (int k = 0; k < V; ++k) {
            const float value = SQUARES ? values[k] * values[k] : values[k];
#pragma unroll
            for (int v = 0; v < V; ++v)
                if (V == 1 || static_cast<unsigned>(d + k - v + half) <= 2u * half) sum[v] += value;
        }
    }
}

template <int V, class T>
LM_FN void lrn_across_forward_of(const LrnArgs<T>& p) {
    LM_DYN_SHARED(float, x);
    const Pixels mine = my_pixels(p);
    visit_mine<V>(mine, [&](int i) { stage<V>(x + i, p.x + mine.first + i); });
    async_commit();
    async_wait<0>();
    block_sync();
    visit_mine<V>(mine, [&](int i) {
        float y[V], s[V];
        load<V>(y, x + i);
        sum_across<V, true>(p, x, i, s);
#pragma unroll
        for (int v = 0; v < V; ++v) y[v] = y[v] * inverse_power(p.k + p.alpha * s[v], p.beta);
        store<V>(p.y + mine.first + i, y);
    });
}
LM_KERNEL_OF_ELEMENTS(lrn_across_forward_v4, LrnArgs, 256, lrn_across_forward_of<4>)
LM_KERNEL_OF_ELEMENTS(lrn_across_forward_v1, LrnArgs, 256, lrn_across_forward_of<1>)

template <int V, class T>
LM_FN void lrn_across_backward_of(const LrnArgs<T>& p) {
    LM_DYN_SHARED(float, x);
    const Pixels mine = my_pixels(p);
    float* direct = x + p.pixels * p.channels;  // dy at first
    float* ratio = direct + p.pixels * p.channels;
    visit_mine<V>(mine, [&](int i) {
        stage<V>(x + i, p.x + mine.first + i);
        stage<V>(direct + i, p.dy + mine.first + i);
    });
    async_commit();
    async_wait<0>();
    block_sync();
    visit_mine<V>(mine, [&](int i) {
        float own[V], dy[V], s[V];
        load<V>(own, x + i);
        load<V>(dy, direct + i);
        sum_across<V, true>(p, x, i, s);
#pragma unroll
        for (int v = 0; v < V; ++v) {
            s[v] = p.k + p.alpha * s[v];
            dy[v] = dy[v] * inverse_power(s[v], p.beta);
            s[v] = dy[v] * own[v] / s[v];
        }
        store<V>(direct + i, dy);
        store<V>(ratio + i, s);
    });
    block_sync();
    visit_mine<V>(mine, [&](int i) {
        float own[V], dx[V], around[V];
        load<V>(own, x + i);
        load<V>(dx, direct + i);
        sum_across<V, false>(p, ratio, i, around);
#pragma unroll
        for (int v = 0; v < V; ++v) dx[v] = dx[v] - 2.0f * p.alpha * p.beta * own[v] * around[v];
        put<V>(p.y + mine.first + i, dx, p.accumulate);
    });
}
LM_KERNEL_OF_ELEMENTS(lrn_across_backward_v4, LrnArgs, 256, lrn_across_backward_of<4>)
LM_KERNEL_OF_ELEMENTS(lrn_across_backward_v1, LrnArgs, 256, lrn_across_backward_of<1>)

// ---- within a channel -----------------------------------------------------------------------------------------------

// Sums over the pixels around the V elements from i on, each in its channel.
template <int V, bool SQUARES, class T, class U>
LM_FN void sum_within(const LrnArgs<T>& p, const U* of, unsigned i, float (&sum)[V]) {
    const int pixel = divide(i, p.by_channels), line = divide(pixel, p.by_width);
    const int w = pixel - line * p.width, h = line - divide(line, p.by_height) * p.height, half = p.size / 2;
    const int first = max(-half, -w), last = min(half, p.width - 1 - w);
#pragma unroll
    for (int v = 0; v < V; ++v) sum[v] = 0.0f;
    for (int down = max(-half, -h); down <= min(half, p.height - 1 - h); ++down)
#pragma unroll(sizeof(U) == 4 ? 4 : 2)
        for (int right = first; right <= last; ++right) {
            float values[V];
            load<V>(values, of + static_cast<int>(i) + (down * p.width + right) * p.channels);
#pragma unroll
            for (int v = 0; v < V; ++v) sum[v] += SQUARES ? values[v] * values[v] : values[v];
        }
}

template <int V>
LM_FN unsigned my_first() {
    return (blockIdx.x * 256u + threadIdx.x) * V;
}

template <class T>
LM_FN bool beyond(const LrnArgs<T>& p, unsigned i) {
    return i >= static_cast<unsigned>(p.pixels_all) * p.channels;
}

// Returns s of the V elements from i on.
template <int V, class T>
LM_FN void scales_within(const LrnArgs<T>& p, unsigned i, float (&s)[V]) {
    sum_within<V, true>(p, p.x, i, s);
#pragma unroll
    for (int v = 0; v < V; ++v) s[v] = p.k + p.alpha * s[v];
}

template <int V, class T>
LM_FN void lrn_within_forward_of(const LrnArgs<T>& p) {
    const unsigned i = my_first<V>();
    if (beyond(p, i)) return;
    float x[V], s[V];
    load<V>(x, p.x + i);
    scales_within<V>(p, i, s);
#pragma unroll
    for (int v = 0; v < V; ++v) x[v] = x[v] * inverse_power(s[v], p.beta);
    store<V>(p.y + i, x);
}
LM_KERNEL_OF_ELEMENTS(lrn_within_forward_v4, LrnArgs, 256, lrn_within_forward_of<4>)
LM_KERNEL_OF_ELEMENTS(lrn_within_forward_v1, LrnArgs, 256, lrn_within_forward_of<1>)

template <int V, class T>
LM_FN void lrn_within_ratio_of(const LrnArgs<T>& p) {
    const unsigned i = my_first<V>();
    if (beyond(p, i)) return;
    float x[V], dy[V], s[V];
    load<V>(x, p.x + i);
    load<V>(dy, p.dy + i);
    scales_within<V>(p, i, s);
#pragma unroll
    for (int v = 0; v < V; ++v) s[v] = dy[v] * inverse_power(s[v], p.beta) * x[v] / s[v];
    store<V>(p.ratio + i, s);
}
LM_KERNEL_OF_ELEMENTS(lrn_within_ratio_v4, LrnArgs, 256, lrn_within_ratio_of<4>)
LM_KERNEL_OF_ELEMENTS(lrn_within_ratio_v1, LrnArgs, 256, lrn_within_ratio_of<1>)

template <int V, class T>
LM_FN void load_both(const LrnArgs<T>& p, unsigned i, float (&x)[V], float (&dy)[V]) {
    load<V>(x, p.x + i);
    load<V>(dy, p.dy + i);
}

template <int V, class T>
LM_FN void lrn_within_backward_of(const LrnArgs<T>& p) {
    const unsigned i = my_first<V>();
    if (beyond(p, i)) return;
    float x[V], dy[V], s[V], around[V];
    if constexpr (sizeof(T) == sizeof(float)) load_both<V>(p, i, x, dy);
    scales_within<V>(p, i, s);
    sum_within<V, false>(p, p.ratio, i, around);
    if constexpr (sizeof(T) != sizeof(float)) load_both<V>(p, i, x, dy);  // later, to have registers for the sums
#pragma unroll
    for (int v = 0; v < V; ++v)
        dy[v] = dy[v] * inverse_power(s[v], p.beta) - 2.0f * p.alpha * p.beta * x[v] * around[v];
    put<V>(p.y + i, dy, p.accumulate);
}
LM_KERNEL_OF_ELEMENTS(lrn_within_backward_v4, LrnArgs, 256, lrn_within_backward_of<4>)
LM_KERNEL_OF_ELEMENTS(lrn_within_backward_v1, LrnArgs, 256, lrn_within_backward_of<1>)

}  // namespace lm
