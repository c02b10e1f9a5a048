// The backward steps of BatchNorm: the sums over a channel that its gradient needs, and the gradient of x.
// batch_norm.cuh has the formula and the forward steps.
//
//   order      gradient_sums, or the epilogue of conv_dgrad -> channel_sums over its parts -> batch_norm_backward
//   launch     each kernel states its own
//   traffic    16|x| bytes read, 4|x| written; half in 16 bits: bound by memory
//   assumes    _v4: columns and pitch are multiples of 4, buffers aligned to four elements; elements below 2^31
//   source     Caffe batch_norm_layer.cu
#pragma once
#include "batch_norm.cuh"

namespace lm {

// gradient_sums: sums of dy and of dy y in each unit of rows (gradient_sums.cuh).  Over all units they are the
// gradients of bias and factor, if a Scale follows.
//   parts [units][2][C] float written     x, dy [outer][C][inner] read, mean, inv_std [C] float read
//   at.open [2][128][C] float written and read: the rows of x and of dy of a unit that goes on in a later slice
//   launch   as batch_moments
template <class T>
struct GradientSumsArgs {
    float* parts;
    const T* x;
    const T* dy;
    const float* mean;
    const float* inv_std;
    AffineRelu epilogue;
    Columns at;         // rows_each is that of a unit
    int across, units;  // blocks across the columns; units from at.first_part on
};

template <int V, class T>
LM_FN void gradient_sums_of(const GradientSumsArgs<T>& p) {
    constexpr int LINES = UNIT_LINES, EACH = GROUP_ROWS / LINES, SUMS = GRADIENT_TERMS * GROUPS * V;
    LM_SHARED(float, lanes, [SUMS][COLUMN_THREADS]);
    const Columns& at = p.at;
    const UnitOfThread<V> unit(at, p.across, p.units);
    const TermsOfColumns<V> terms_of(p.mean, p.inv_std, p.epilogue, unit.column, unit.is_mine);
    const int thread = threadIdx.x;
    float* open_dy = at.open + UNIT_ROWS * at.columns;
#pragma unroll 1
    for (int g = 0; g < GROUPS; ++g) {
        float x[EACH][V] = {}, dy[EACH][V] = {};
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const int within = GROUP_ROWS * g + LINES * i + unit.line, row = unit.begin + within;
            if (!unit.is_mine || row >= min(unit.rows, at.here)) continue;
            load_row<V>(x[i], p.x, at.open, at, row, within, unit.column);
            load_row<V>(dy[i], p.dy, open_dy, at, row, within, unit.column);
        }
        if (unit.is_mine && !unit.ends_here) {  // a later slice goes on
#pragma unroll
            for (int i = 0; i < EACH; ++i) {
                const int within = GROUP_ROWS * g + LINES * i + unit.line, row = unit.begin + within;
                if (row < 0 || row >= at.here) continue;
                store<V>(at.open + within * at.columns + unit.column, x[i]);
                store<V>(open_dy + within * at.columns + unit.column, dy[i]);
            }
        }
#pragma unroll
        for (int v = 0; v < V; ++v) {
            float terms[GRADIENT_TERMS][EACH];
#pragma unroll
            for (int i = 0; i < EACH; ++i) {
                float y;
                terms[0][i] = terms_of.gradient(v, dy[i][v], x[i][v], y);
                terms[1][i] = terms[0][i] * y;
            }
#pragma unroll
            for (int k = 0; k < GRADIENT_TERMS; ++k)
                lanes[(GRADIENT_TERMS * g + k) * V + v][thread] = sum_apart(terms[k]);
        }
    }
    for (int half = LINES / 2; half > 0; half /= 2) {
        block_sync();
        if (unit.line < half) {
#pragma unroll
            for (int i = 0; i < SUMS; ++i) lanes[i][thread] += lanes[i][thread + half * at.width];
        }
    }
    if (unit.line != 0 || !unit.is_mine || !unit.ends_here) return;
#pragma unroll
    for (int k = 0; k < GRADIENT_TERMS; ++k) {
        float sums[V];
#pragma unroll
        for (int v = 0; v < V; ++v)
            sums[v] = sum_groups([&](int g) { return lanes[(GRADIENT_TERMS * g + k) * V + v][thread]; });
        store<V>(p.parts + (GRADIENT_TERMS * (at.first_part + unit.number) + k) * at.columns + unit.column, sums);
    }
}
LM_KERNEL_OF_ELEMENTS(gradient_sums_v4, GradientSumsArgs, COLUMN_THREADS, gradient_sums_of<4>)
LM_KERNEL_OF_ELEMENTS(gradient_sums_v1, GradientSumsArgs, COLUMN_THREADS, gradient_sums_of<1>)

// batch_norm_backward: dx = (dy - mean(dy) - y mean(dy y)) inv_std, times factor if a Scale follows
//   dx written or added to; may lie on dy or x      sums [2][C] float read
//   launch   a thread takes 2 V elements: grid ceil(count / (512 V)), block 256
template <class T>
struct BatchNormBackwardArgs {
    T* dx;
    const T* dy;
    const T* x;
    const float* mean;
    const float* inv_std;
    const float* sums;
    AffineRelu epilogue;
    Divider by_inner, by_channels;
    int count, accumulate;
    float inv_count;  // 1 / elements of a channel
};

// Turns dy, the gradient of the normalized values, into the gradient of V columns of x from c on.
template <int V>
LM_FN void gradient_of_columns(float (&dy)[V], const float (&x)[V], const TermsOfColumns<V>& terms_of,
                               const float* factors, const float* sums, int c, int channels, float inv_count) {
    float mean_dy[V], mean_dyy[V];
    load<V>(mean_dy, sums + c);
    load<V>(mean_dyy, sums + channels + c);
#pragma unroll
    for (int v = 0; v < V; ++v) {
        float y;
        dy[v] = terms_of.gradient(v, dy[v], x[v], y);
        dy[v] = (dy[v] - mean_dy[v] * inv_count - y * (mean_dyy[v] * inv_count)) * terms_of.inv_std[v];
    }
    if (factors == nullptr) return;
    float factor[V];
    load<V>(factor, factors + c);
#pragma unroll
    for (int v = 0; v < V; ++v) dy[v] = dy[v] * factor[v];
}

template <int V, class T>
LM_FN void batch_norm_backward_of(const BatchNormBackwardArgs<T>& p) {
    const unsigned count = static_cast<unsigned>(p.count);
    float inputs[BACKWARD_GROUPS][V], gradients[BACKWARD_GROUPS][V];
#pragma unroll
    for (int g = 0; g < BACKWARD_GROUPS; ++g) {
        const unsigned i = group_at<V, BACKWARD_GROUPS>(g);
        if (i >= count) continue;
        load<V>(inputs[g], p.x + i);
        load<V>(gradients[g], p.dy + i);
    }
#pragma unroll
    for (int g = 0; g < BACKWARD_GROUPS; ++g) {
        const unsigned i = group_at<V, BACKWARD_GROUPS>(g);
        if (i >= count) return;
        const int c = channel_at(i, p.by_inner, p.by_channels);
        const TermsOfColumns<V> terms_of(p.mean, p.inv_std, p.epilogue, c, true);
        gradient_of_columns(gradients[g], inputs[g], terms_of, p.epilogue.factor, p.sums, c, p.by_channels.divisor,
                            p.inv_count);
        put<V>(p.dx + i, gradients[g], p.accumulate);
    }
}
LM_KERNEL_OF_ELEMENTS(batch_norm_backward_v4, BatchNormBackwardArgs, 256, batch_norm_backward_of<4>)
LM_KERNEL_OF_ELEMENTS(batch_norm_backward_v1, BatchNormBackwardArgs, 256, batch_norm_backward_of<1>)

}  // namespace lm
