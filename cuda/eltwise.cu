// Eltwise: several blobs of one shape, combined element by element, in the order of the bottoms.
//   y, dx [count] written (dx maybe added to)     x, dy [count] read: float, or 16 bits (element.cuh)     winner [count], a byte or an int
//   mask   a bit per element
//   launch   eltwise_sum, eltwise_product, eltwise_max, eltwise_max_backward: four elements a thread, grid
//            ceil(count / 1024), block 256; eltwise_sum_relu, eltwise_sum_relu_backward: eight, grid ceil(count / 2048);
//            eltwise_product_backward: one, grid ceil(count / 64), block 64, dynamic shared 256 bytes per bottom
//   traffic  4 bytes, or 2, per element of each bottom and of the result: bound by memory
//   overlay  a thread reads all its inputs before it writes, so that outputs may lie on inputs
//   assumes  at most MAX_INPUTS bottoms
//   source   Caffe eltwise_layer.cu; of equal largest inputs the last wins, as there
#include "pointwise.cuh"

using namespace lm;

constexpr int MAX_INPUTS = 64;

template <class T>
struct EltwiseArgs {
    T* y;
    void* winner;         // or null
    unsigned char* mask;  // or null
    const T* x[MAX_INPUTS];
    float coefficients[MAX_INPUTS];
    int inputs, count;
    int wide;            // winner is int, not a byte
    float largest_zero;  // of a mask (pointwise.cuh)
};

// Four elements from `at` on; what lies beyond `count` is zero.
template <class T>
LM_FN void load_some(float (&to)[4], const T* x, unsigned at, unsigned count) {
    if (at + 4 <= count && is_aligned(x))
        load<4>(to, x + at);
    else
#pragma unroll
        for (int e = 0; e < 4; ++e) to[e] = at + e < count ? widened(x[at + e]) : 0.0f;
}

template <class T>
LM_FN void store_some(T* y, const float (&from)[4], unsigned at, unsigned count) {
    if (at + 4 <= count && is_aligned(y))
        store<4>(y + at, from);
    else
#pragma unroll
        for (int e = 0; e < 4; ++e)
            if (at + e < count) store_one(y + at + e, from[e]);
}

// Calls use(k, N values of bottom k) for each bottom k; those of the next one are loaded before.
template <int N, class T, class Load, class Use>
LM_FN void visit_bottoms(const EltwiseArgs<T>& p, Load load, Use use) {
    float now[N], next[N] = {};
    load(now, p.x[0]);
#pragma unroll 2
    for (int k = 0; k < p.inputs; ++k) {
        if (k + 1 < p.inputs) load(next, p.x[k + 1]);
        use(k, now);
#pragma unroll
        for (int e = 0; e < N; ++e) now[e] = next[e];
    }
}

// y = combine(.. combine(first(x0, coefficient 0), x1, coefficient 1) ..)
template <class T, class First, class Combine>
LM_FN void fold(const EltwiseArgs<T>& p, First first, Combine combine) {
    const unsigned at = 4u * (blockIdx.x * POINTWISE_THREADS + threadIdx.x), count = static_cast<unsigned>(p.count);
    if (at >= count) return;
    float sum[4];
    visit_bottoms<4>(
        p, [&](float (&to)[4], const T* x) { load_some(to, x, at, count); },
        [&](int k, const float (&x)[4]) {
#pragma unroll
            for (int e = 0; e < 4; ++e) sum[e] = k == 0 ? first(x[e]) : combine(sum[e], x[e], k);
        });
    store_some(p.y, sum, at, count);
}

template <class T>
LM_FN void eltwise_sum_of(const EltwiseArgs<T>& p) {
    fold(
        p, [&](float x) { return p.coefficients[0] * x; },
        [&](float sum, float x, int k) { return sum + p.coefficients[k] * x; });
}
LM_KERNEL_OF_ELEMENTS(eltwise_sum, EltwiseArgs, POINTWISE_THREADS, eltwise_sum_of)

// eltwise_sum_relu: y = max(sum, 0), and a bit where y is positive
template <class T>
LM_FN void eltwise_sum_relu_of(const EltwiseArgs<T>& p) {
    const unsigned at = first_of_eight(), count = static_cast<unsigned>(p.count);
    if (at >= count) return;
    float sum[8];
    visit_bottoms<8>(
        p, [&](float (&to)[8], const T* x) { load_eight(to, x, at, count); },
        [&](int k, const float (&x)[8]) {
#pragma unroll
            for (int e = 0; e < 8; ++e) {
                const float term = p.coefficients[k] * x[e];
                sum[e] = k == 0 ? term : sum[e] + term;
            }
        });
    unsigned bits = 0;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
        if (sum[e] > p.largest_zero) bits |= 1u << e;
        sum[e] = positive(sum[e]);
    }
    if (p.mask != nullptr) p.mask[at / 8] = static_cast<unsigned char>(bits);  // elements beyond count are zero
    put_eight(p.y, sum, at, count, false);
}
LM_KERNEL_OF_ELEMENTS(eltwise_sum_relu, EltwiseArgs, POINTWISE_THREADS, eltwise_sum_relu_of)

template <class T>
LM_FN void eltwise_product_of(const EltwiseArgs<T>& p) {
    fold(p, [](float x) { return x; }, [](float product, float x, int) { return product * x; });
}
LM_KERNEL_OF_ELEMENTS(eltwise_product, EltwiseArgs, POINTWISE_THREADS, eltwise_product_of)

template <class T>
LM_FN void eltwise_max_of(const EltwiseArgs<T>& p) {
    const unsigned at = 4u * (blockIdx.x * POINTWISE_THREADS + threadIdx.x), count = static_cast<unsigned>(p.count);
    if (at >= count) return;
    float best[4];
    int winner[4] = {};
    visit_bottoms<4>(
        p, [&](float (&to)[4], const T* x) { load_some(to, x, at, count); },
        [&](int k, const float (&x)[4]) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const bool keep = k > 0 && best[e] > x[e];
                best[e] = keep ? best[e] : x[e];
                winner[e] = keep ? winner[e] : k;
            }
        });
    store_some(p.y, best, at, count);
    if (p.winner == nullptr) return;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
        if (at + e >= count) continue;
        if (p.wide)
            static_cast<int*>(p.winner)[at + e] = winner[e];
        else
            static_cast<unsigned char*>(p.winner)[at + e] = static_cast<unsigned char>(winner[e]);
    }
}
LM_KERNEL_OF_ELEMENTS(eltwise_max, EltwiseArgs, POINTWISE_THREADS, eltwise_max_of)

// eltwise_max_backward: dx of bottom `which` = dy where it won
template <class T>
struct MaxBackwardArgs {
    T* dx;
    const T* dy;
    const void* winner;
    int which, count, wide, accumulate;
};

template <class T>
LM_FN void eltwise_max_backward_of(const MaxBackwardArgs<T>& p) {
    pointwise<1, 1>(p.dx, {p.dy}, p.count, p.accumulate, [&](const float (&in)[1], unsigned i) {
        if (i >= static_cast<unsigned>(p.count)) return 0.0f;
        const int won = p.wide ? static_cast<const int*>(p.winner)[i] : static_cast<const unsigned char*>(p.winner)[i];
        return won == p.which ? in[0] : 0.0f;
    });
}
LM_KERNEL_OF_ELEMENTS(eltwise_max_backward, MaxBackwardArgs, POINTWISE_THREADS, eltwise_max_backward_of)

// eltwise_product_backward: every wanted dx_i = dy times the product of the other bottoms
template <class T>
struct ProductBackwardArgs {
    T* dx[MAX_INPUTS];  // null if the gradient is not computed
    const T* x[MAX_INPUTS];
    const T* dy;
    unsigned long long accumulates;  // bit i: add to dx_i
    int inputs, count;
};

constexpr int PRODUCT_THREADS = 64;

template <class T>
LM_FN void eltwise_product_backward_of(const ProductBackwardArgs<T>& p) {
    LM_DYN_SHARED(float, staged);  // [inputs][threads]: a gradient may lie on a factor of the next one
    const unsigned i = blockIdx.x * PRODUCT_THREADS + threadIdx.x;
    if (i >= static_cast<unsigned>(p.count)) return;
    const float dy = widened(p.dy[i]);
    for (int k = 0; k < p.inputs; ++k) {
        float product = dy;
        if (p.dx[k] != nullptr)
            for (int other = 0; other < p.inputs; ++other)
                if (other != k) product *= widened(p.x[other][i]);
        staged[k * PRODUCT_THREADS + threadIdx.x] = product;
    }
    for (int k = 0; k < p.inputs; ++k)
        if (p.dx[k] != nullptr) put(p.dx[k] + i, staged[k * PRODUCT_THREADS + threadIdx.x], p.accumulates >> k & 1u);
}
LM_KERNEL_OF_ELEMENTS(eltwise_product_backward, ProductBackwardArgs, PRODUCT_THREADS, eltwise_product_backward_of)

// eltwise_sum_relu_backward: every wanted dx_i = coefficient_i dy where the sum was positive, by the mask or by y
template <class T>
struct SumBackwardArgs {
    T* dx[MAX_INPUTS];  // null if the gradient is not computed
    float coefficients[MAX_INPUTS];
    const T* dy;
    const T* y;                      // read where there is no mask
    const unsigned char* mask;       // or null
    unsigned long long accumulates;  // bit i: add to dx_i
    int inputs, count;
};

template <class T>
LM_FN void eltwise_sum_relu_backward_of(const SumBackwardArgs<T>& p) {
    const unsigned at = first_of_eight(), count = static_cast<unsigned>(p.count);
    if (at >= count) return;
    float dy[8], values[8];
    load_eight(dy, p.dy, at, count);
    unsigned bits = 0;
    if (p.mask != nullptr) {
        bits = p.mask[at / 8];
    } else {
        load_eight(values, p.y, at, count);
#pragma unroll
        for (int e = 0; e < 8; ++e) bits |= (values[e] > 0.0f ? 1u : 0u) << e;
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) dy[e] = bits >> e & 1u ? dy[e] : 0.0f;
#pragma unroll 1
    for (int k = 0; k < p.inputs; ++k) {
        if (p.dx[k] == nullptr) continue;
#pragma unroll
        for (int e = 0; e < 8; ++e) values[e] = p.coefficients[k] * dy[e];
        put_eight(p.dx[k], values, at, count, p.accumulates >> k & 1u);
    }
}
LM_KERNEL_OF_ELEMENTS(eltwise_sum_relu_backward, SumBackwardArgs, POINTWISE_THREADS, eltwise_sum_relu_backward_of)
