// Eltwise: several blobs of one shape, combined element by element, in the order of the bottoms.
//   y, dx [count] float written (dx maybe added to)     x, dy [count] float read     winner [count], a byte or an int
//   mask   a bit per element
//   launch   four elements a thread, grid ceil(count / 1024), block 256; eltwise_sum_relu*: eight, grid
//            ceil(count / 2048); eltwise_product_backward: one, grid ceil(count / 64), block 64, dynamic
//            shared 256 bytes per bottom
//   traffic  4 bytes per element of each bottom and of what is written: bound by memory
//   overlay  a thread reads all its inputs before it writes, so that outputs may lie on inputs
//   assumes  at most MOST_INPUTS bottoms
//   source   Caffe eltwise_layer.cu; of equal largest inputs the last wins, as there
#include "pointwise.cuh"

using namespace lm;

constexpr int MOST_INPUTS = 64;

struct EltwiseArgs {
    float* y;
    void* winner;         // or null
    unsigned char* mask;  // or null
    const float* x[MOST_INPUTS];
    float coefficients[MOST_INPUTS];
    int inputs, count;
    int wide;  // winner is int, not a byte
};

// Four elements from `at` on; what lies beyond `count` is zero.
LM_FN void load_some(float (&to)[4], const float* x, unsigned at, unsigned count) {
    if (at + 4 <= count && is_aligned(x))
        load<4>(to, x + at);
    else
#pragma unroll
        for (int e = 0; e < 4; ++e) to[e] = at + e < count ? x[at + e] : 0.0f;
}

LM_FN void store_some(float* y, const float (&from)[4], unsigned at, unsigned count) {
    if (at + 4 <= count && is_aligned(y))
        store<4>(y + at, from);
    else
#pragma unroll
        for (int e = 0; e < 4; ++e)
            if (at + e < count) y[at + e] = from[e];
}

// Calls use(k, N values of bottom k) for each bottom k; those of the next one are loaded before.
template <int N, class Load, class Use>
LM_FN void visit_bottoms(const EltwiseArgs& p, Load load, Use use) {
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
template <class First, class Combine>
LM_FN void fold(const EltwiseArgs& p, First first, Combine combine) {
    const unsigned at = 4u * (blockIdx.x * POINTWISE_THREADS + threadIdx.x), count = static_cast<unsigned>(p.count);
    if (at >= count) return;
    float sum[4];
    visit_bottoms<4>(
        p, [&](float (&to)[4], const float* x) { load_some(to, x, at, count); },
        [&](int k, const float (&x)[4]) {
#pragma unroll
            for (int e = 0; e < 4; ++e) sum[e] = k == 0 ? first(x[e]) : combine(sum[e], x[e], k);
        });
    store_some(p.y, sum, at, count);
}

LM_KERNEL(eltwise_sum, EltwiseArgs, p, POINTWISE_THREADS) {
    fold(
        p, [&](float x) { return p.coefficients[0] * x; },
        [&](float sum, float x, int k) { return sum + p.coefficients[k] * x; });
}

// eltwise_sum_relu: y = max(sum, 0), and a bit where the sum is positive
LM_KERNEL(eltwise_sum_relu, EltwiseArgs, p, POINTWISE_THREADS) {
    const unsigned at = first_of_eight(), count = static_cast<unsigned>(p.count);
    if (at >= count) return;
    float sum[8];
    visit_bottoms<8>(
        p, [&](float (&to)[8], const float* x) { load_eight(to, x, at, count); },
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
        if (sum[e] > 0.0f) bits |= 1u << e;
        sum[e] = positive(sum[e]);
    }
    if (p.mask != nullptr) p.mask[at / 8] = static_cast<unsigned char>(bits);  // elements beyond count are zero
    put_eight(p.y, sum, at, count, false);
}

LM_KERNEL(eltwise_product, EltwiseArgs, p, POINTWISE_THREADS) {
    fold(p, [](float x) { return x; }, [](float product, float x, int) { return product * x; });
}

LM_KERNEL(eltwise_max, EltwiseArgs, p, POINTWISE_THREADS) {
    const unsigned at = 4u * (blockIdx.x * POINTWISE_THREADS + threadIdx.x), count = static_cast<unsigned>(p.count);
    if (at >= count) return;
    float best[4];
    int winner[4] = {};
    visit_bottoms<4>(
        p, [&](float (&to)[4], const float* x) { load_some(to, x, at, count); },
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

// eltwise_max_backward: dx of bottom `which` = dy where it won
struct MaxBackwardArgs {
    float* dx;
    const float* dy;
    const void* winner;
    int which, count, wide, accumulate;
};

LM_KERNEL(eltwise_max_backward, MaxBackwardArgs, p, POINTWISE_THREADS) {
    pointwise<1, 1>(p.dx, {p.dy}, p.count, p.accumulate, [&](const float (&in)[1], unsigned i) {
        if (i >= static_cast<unsigned>(p.count)) return 0.0f;
        const int won = p.wide ? static_cast<const int*>(p.winner)[i] : static_cast<const unsigned char*>(p.winner)[i];
        return won == p.which ? in[0] : 0.0f;
    });
}

// eltwise_product_backward: every wanted dx_i = dy times the product of the other bottoms
struct ProductBackwardArgs {
    float* dx[MOST_INPUTS];  // null if the gradient is not computed
    const float* x[MOST_INPUTS];
    const float* dy;
    unsigned long long accumulates;  // bit i: add to dx_i
    int inputs, count;
};

constexpr int PRODUCT_THREADS = 64;

LM_KERNEL(eltwise_product_backward, ProductBackwardArgs, p, PRODUCT_THREADS) {
    LM_DYN_SHARED(float, staged);  // [inputs][threads]: a gradient may lie on a factor of the next one
    const unsigned i = blockIdx.x * PRODUCT_THREADS + threadIdx.x;
    if (i >= static_cast<unsigned>(p.count)) return;
    const float dy = p.dy[i];
    for (int k = 0; k < p.inputs; ++k) {
        float product = dy;
        if (p.dx[k] != nullptr)
            for (int other = 0; other < p.inputs; ++other)
                if (other != k) product *= p.x[other][i];
        staged[k * PRODUCT_THREADS + threadIdx.x] = product;
    }
    for (int k = 0; k < p.inputs; ++k)
        if (p.dx[k] != nullptr) put(p.dx[k] + i, staged[k * PRODUCT_THREADS + threadIdx.x], p.accumulates >> k & 1u);
}

// eltwise_sum_relu_backward: every wanted dx_i = coefficient_i dy where the sum was positive, by the mask or by y
struct SumBackwardArgs {
    float* dx[MOST_INPUTS];  // null if the gradient is not computed
    float coefficients[MOST_INPUTS];
    const float* dy;
    const float* y;                  // read where there is no mask
    const unsigned char* mask;       // or null
    unsigned long long accumulates;  // bit i: add to dx_i
    int inputs, count;
};

LM_KERNEL(eltwise_sum_relu_backward, SumBackwardArgs, p, POINTWISE_THREADS) {
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
