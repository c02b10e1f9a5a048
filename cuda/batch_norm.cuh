// BatchNorm: y = (x - mean) inv_std, a channel at a time, and its gradient.
//
//   forward    batch_moments, or the epilogue of conv_fprop -> batch_statistics -> normalize
//              global_statistics -> normalize             if the moving averages are used instead
//              without normalize: the statistics step of slices of a batch, in which each slice continues the one before
//   recompute  normalize alone, from the kept statistics
//   backward   gradient_sums, or the epilogue of conv_dgrad -> channel_sums over its parts -> batch_norm_backward, which is a step of its own in slices
//   a Scale, a sum and a ReLU that follow may run in the same passes:
//   y = relu(factor (x - mean) inv_std + bias + added); `added` may be another BatchNorm with its Scale
//   x, y, dy, dx [outer][C][inner] float, or 16 bits (element.cuh) in kernels whose names end in the type's; all else
//   is float; inner is 1 for channels-last
//   traffic    forward 8|x| bytes read, 4|x| written; backward 16|x| read, 4|x| written; half in 16 bits: bound by memory
//   assumes    _v4: columns and pitch are multiples of 4, buffers aligned to four elements; elements below 2^31
//   precision  moments of 128 rows, then of all, are merged pairwise in a fixed order (moments.cuh).  No difference of
//              large squares anywhere
//   source     Caffe batch_norm_layer.cu
#pragma once
#include "channel_sums.cuh"
#include "gradient_sums.cuh"
#include "moments.cuh"
#include "step_scalars.cuh"

namespace lm {

// Like sum_columns, for moments: `own(row, end, step, column, moments)` gathers a thread's rows.  Rows from `at.here`
// on are not in this slice of the batch; rows before 0 were in earlier slices.
template <int V, class Own, class Finish>
LM_FN void merge_columns(const Columns& at, Own own, Finish finish) {
    LM_SHARED(Moments, lanes, [COLUMN_THREADS][V]);
    const int thread = threadIdx.x, line = thread / at.width, lines = COLUMN_THREADS / at.width;
    const int column = column_of<V>(at);
    const int begin = part_of(at) * at.rows_each - at.first, end = min(begin + at.rows_each, at.rows - at.first);
    Moments mine[V] = {};
    if (column < at.columns && begin + line < end) own(begin + line, end, lines, column, mine);
    if (end > at.here) return;  // a later slice goes on
#pragma unroll
    for (int v = 0; v < V; ++v) lanes[thread][v] = mine[v];
    for (int half = lines / 2; half > 0; half /= 2) {
        block_sync();
        if (line < half) {
#pragma unroll
            for (int v = 0; v < V; ++v) lanes[thread][v] = merge(lanes[thread][v], lanes[thread + half * at.width][v]);
        }
    }
    if (line == 0 && column < at.columns) {
#pragma unroll
        for (int v = 0; v < V; ++v) finish(column + v, lanes[thread][v]);
    }
}

// batch_moments: the moments of each unit of rows (moments.cuh).
//   parts [units][2][C] float written     x [outer][C][inner] read
//   at.open [128][C] float written and read: the rows of a unit that goes on in a later slice of the batch
//   launch   grid across x ceil(units / (32 / width)), block 256: width lanes across the columns, and eight along the rows
//            of each unit
template <class T>
struct MomentsArgs {
    float* parts;
    const T* x;
    Columns at;         // rows_each is that of a unit
    int across, units;  // blocks across the columns; units from at.first_part on
};

constexpr int UNIT_LINES = 8;  // threads along the rows of a unit

// Sums, over each group, the values of `term` for a thread's values; all threads of the unit get the result.
template <int V, class Term>
LM_FN void sum_unit(float (*lanes)[GROUPS * V], int width, int line, Term term, float (&sums)[GROUPS][V]) {
    const int thread = threadIdx.x;
    block_sync();  // no thread reads the sums before these any more
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
            float terms[GROUP_ROWS / UNIT_LINES];
#pragma unroll
            for (int i = 0; i < GROUP_ROWS / UNIT_LINES; ++i) terms[i] = term(g, i, v);
            lanes[thread][g * V + v] = sum_apart(terms);
        }
    }
    for (int half = UNIT_LINES / 2; half > 0; half /= 2) {
        block_sync();
        if (line < half) {
#pragma unroll
            for (int i = 0; i < GROUPS * V; ++i) lanes[thread][i] += lanes[thread + half * width][i];
        }
    }
    block_sync();
#pragma unroll
    for (int g = 0; g < GROUPS; ++g)
#pragma unroll
        for (int v = 0; v < V; ++v) sums[g][v] = lanes[thread - line * width][g * V + v];
}

// Returns the V columns of a row of this slice, or of the rows `open` of a unit that an earlier slice began.
template <int V, class T>
LM_FN void load_row(float (&values)[V], const T* x, const float* open, const Columns& at, int row, int within,
                    int column) {
    const float* left = open + within * at.columns + column;
    if constexpr (sizeof(T) == sizeof(float))  // one load, whatever the address
        load<V>(values, row < 0 ? left : x + offset_of<V>(at, row, column));
    else if (row < 0)
        load<V>(values, left);
    else
        load<V>(values, x + offset_of<V>(at, row, column));
}

// Returns the unit and the columns of a thread, whose block is one of a grid across x ceil(units / (32 / width)).
template <int V>
struct UnitOfThread {
    int line, column, number;
    int begin, rows;  // from the first row of this slice; rows after that, in this slice and in later ones
    bool is_mine, ends_here;

    LM_MEMBER UnitOfThread(const Columns& at, int across, int units) {
        const int thread = threadIdx.x, block = static_cast<int>(blockIdx.x) / across;
        line = thread / at.width % UNIT_LINES;
        number = block * (COLUMN_THREADS / UNIT_LINES / at.width) + thread / at.width / UNIT_LINES;
        column = ((static_cast<int>(blockIdx.x) - block * across) * at.width + thread % at.width) * V;
        is_mine = number < units && column < at.columns;
        begin = (at.first_part + number) * UNIT_ROWS - at.first;
        rows = is_mine ? at.rows - at.first : 0;
        ends_here = min(begin + UNIT_ROWS, rows) <= at.here;
    }
};

template <int V, class T>
LM_FN void batch_moments_of(const MomentsArgs<T>& p) {
    constexpr int LINES = UNIT_LINES, EACH = GROUP_ROWS / LINES;  // rows of a group that a thread has
    LM_SHARED(float, lanes, [COLUMN_THREADS][GROUPS * V]);
    const Columns& at = p.at;
    const UnitOfThread<V> unit(at, p.across, p.units);
    const int line = unit.line, column = unit.column, number = unit.number, begin = unit.begin, rows = unit.rows;
    const bool is_mine = unit.is_mine, ends_here = unit.ends_here;
    float values[GROUPS][EACH][V] = {};
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const int within = GROUP_ROWS * g + LINES * i + line, row = begin + within;
            if (is_mine && row < min(rows, at.here)) load_row<V>(values[g][i], p.x, at.open, at, row, within, column);
        }
    }
    if (is_mine && !ends_here) {
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
            for (int i = 0; i < EACH; ++i) {
                const int within = GROUP_ROWS * g + LINES * i + line, row = begin + within;
                if (row >= 0 && row < at.here) store<V>(at.open + within * at.columns + column, values[g][i]);
            }
        }
    }
    float means[GROUPS][V], m2[GROUPS][V];
    sum_unit<V>(lanes, at.width, line, [&](int g, int i, int v) { return values[g][i][v]; }, means);
#pragma unroll
    for (int g = 0; g < GROUPS; ++g)
#pragma unroll
        for (int v = 0; v < V; ++v)
            means[g][v] /= static_cast<float>(rows_within<GROUP_ROWS>(begin + GROUP_ROWS * g, rows));
    sum_unit<V>(
        lanes, at.width, line,
        [&](int g, int i, int v) {
            const float distance = values[g][i][v] - means[g][v];
            return begin + GROUP_ROWS * g + LINES * i + line < rows ? distance * distance : 0.0f;
        },
        m2);
    if (line != 0 || !is_mine || !ends_here) return;
    float mean[V], squares[V];
#pragma unroll
    for (int v = 0; v < V; ++v) {
        const Moments all = merge_groups([&](int g) {
            const float count = static_cast<float>(rows_within<GROUP_ROWS>(begin + GROUP_ROWS * g, rows));
            return Moments{count, means[g][v], m2[g][v]};
        });
        mean[v] = all.mean;
        squares[v] = all.m2;
    }
    float* part = p.parts + 2 * (at.first_part + number) * at.columns + column;
    store<V>(part, mean);
    store<V>(part + at.columns, squares);
}
LM_KERNEL_OF_ELEMENTS(batch_moments_v4, MomentsArgs, COLUMN_THREADS, batch_moments_of<4>)
LM_KERNEL_OF_ELEMENTS(batch_moments_v1, MomentsArgs, COLUMN_THREADS, batch_moments_of<1>)

// batch_statistics: mean and 1 / sqrt(variance + eps) of the batch, and the moving sums of (mean, unbiased
// variance, 1).
//   mean, inv_std [C] float written     sums of means, of variances [C] and of weights [1] float updated
//   launch   grid (ceil(C / width), 1), block 256; `at` is over the parts, whose pitch is 2 C
struct StatisticsArgs {
    float* mean;
    float* inv_std;
    float* sum_means;
    float* sum_variances;
    float* sum_weights;
    const float* parts;  // [units][2][C] of `rows` rows
    Columns at;
    int rows;
    float eps, fraction, unbiased;  // unbiased: n / (n - 1)
};

// A fraction of 0 discards the old sum, whatever it holds.
LM_FN void move_average(float& sum, float fraction, float value) {
    sum = fraction == 0.0f ? value : fraction * sum + value;
}

LM_KERNEL(batch_statistics, StatisticsArgs, p, COLUMN_THREADS) {
    const int channels = p.at.columns;
    merge_columns<1>(
        p.at,
        [&](int row, int end, int step, int column, Moments(&moments)[1]) {
            int unit = row;
            visit_rows<1>(p.at, {p.parts, p.parts + channels}, row, end, step, column,
                          [&](int, const float (&part)[2][1]) {
                              const float count = static_cast<float>(rows_within<UNIT_ROWS>(unit * UNIT_ROWS, p.rows));
                              const Moments next = {count, part[0][0], part[1][0]};
                              moments[0] = moments[0].count == 0.0f ? next : merge(moments[0], next);
                              unit += step;
                          });
        },
        [&](int column, const Moments& m) {
            const float variance = m.m2 / m.count;
            p.mean[column] = m.mean;
            p.inv_std[column] = 1.0f / sqrtf(variance + p.eps);
            move_average(p.sum_means[column], p.fraction, m.mean);
            move_average(p.sum_variances[column], p.fraction, p.unbiased * variance);
            if (column == 0) move_average(*p.sum_weights, p.fraction, 1.0f);
        });
}

// move_averages: averages by the statistics of several batches, one after the other; each batch has `ops` rows of them.
//   sums of means, of variances [C] and of weights [1] float updated; there may be no weights
//   means, variances [batches][ops][C], weights [batches][ops] float read, of all batches or those that `step` says
//   launch   one thread a channel: grid ceil(C / 256), block 256
struct AveragesArgs {
    float* sum_means;
    float* sum_variances;
    float* sum_weights;
    const float* means;
    const float* variances;
    const float* weights;
    const StepScalars* step;
    int channels, batches, ops;
    float fraction;
};

LM_KERNEL(move_averages, AveragesArgs, p, 256) {
    const int c = blockIdx.x * 256 + threadIdx.x;
    if (c >= p.channels) return;
    const int rows = p.ops * (p.step->averaged < 0 ? p.batches : p.step->averaged);
    for (int row = 0; row < rows; ++row) {
        move_average(p.sum_means[c], p.fraction, p.means[row * p.channels + c]);
        move_average(p.sum_variances[c], p.fraction, p.variances[row * p.channels + c]);
        if (c == 0 && p.sum_weights != nullptr) move_average(*p.sum_weights, p.fraction, p.weights[row]);
    }
}

// global_statistics: the averages from the moving sums; before any training they are 0, as in Caffe.
//   mean, inv_std [C] float written     sums of means, of variances [C] and of weights [1] float read
//   launch   one thread a channel: grid ceil(C / 256), block 256
struct GlobalArgs {
    float* mean;
    float* inv_std;
    const float* sum_means;
    const float* sum_variances;
    const float* sum_weights;
    int channels;
    float eps;
};

LM_KERNEL(global_statistics, GlobalArgs, p, 256) {
    const int c = blockIdx.x * 256 + threadIdx.x;
    if (c >= p.channels) return;
    const float weight = *p.sum_weights, factor = weight != 0.0f ? 1.0f / weight : 0.0f;
    p.mean[c] = p.sum_means != nullptr ? p.sum_means[c] * factor : 0.0f;
    p.inv_std[c] = 1.0f / sqrtf(p.sum_variances[c] * factor + p.eps);
}

// normalize: y = (x - mean) inv_std;  with no mean, y = x inv_std (the gradient where averages are constants).
//   y [outer][C][inner] written     x, residual [outer][C][inner], mean, inv_std [C] float read     mask a bit per element
//   launch   a thread takes 4 V elements, or 8 V of 16 bits: grid ceil(count / (1024 V)), or half as many, block 256
//   overlay  y may lie on x or on the residual
template <class T>
struct NormalizeArgs {
    T* y;
    const T* x;
    const T* residual;    // [outer][C][inner], or null; only with a factor
    unsigned char* mask;  // one bit per element, set where y is positive (pointwise.cuh), or null
    const float* mean;
    const float* inv_std;
    AffineRelu epilogue;
    Divider by_inner, by_channels;
    int count, accumulate;
};

LM_FN int channel_at(unsigned i, const Divider& by_inner, const Divider& by_channels) {
    const unsigned block = divide(i, by_inner);
    return block - divide(block, by_channels) * by_channels.divisor;
}

// Returns the first of the V elements of each of a thread's groups, whose loads are in flight together.
template <class T>
constexpr int NORMALIZE_GROUPS = 16 / sizeof(T);
constexpr int BACKWARD_GROUPS = 2;

template <int V, int GROUPS>
LM_FN unsigned group_at(int g) {
    return (blockIdx.x * (256u * GROUPS) + 256u * g + threadIdx.x) * V;
}

// Returns the bits of the V elements from i on, for lanes with consecutive elements; called by all lanes.
template <int V>
LM_FN void put_bits(unsigned char* mask, unsigned bits, unsigned i, unsigned count) {
    bits <<= i % 8;
#pragma unroll
    for (int distance = 1; distance < 8 / V; distance *= 2) bits |= shuffle_xor(bits, distance);
    if (i % 8 == 0 && i < count) mask[i / 8] = static_cast<unsigned char>(bits);
}

template <int V, class T>
LM_FN void normalize_of(const NormalizeArgs<T>& p) {
    constexpr int GROUPS = NORMALIZE_GROUPS<T>;
    const unsigned count = static_cast<unsigned>(p.count);
    Elements<V, T> values[GROUPS], residuals[GROUPS];
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) {
        const unsigned i = group_at<V, GROUPS>(g);
        if (i >= count) continue;
        values[g].fetch(p.x + i);
        if (p.residual != nullptr) residuals[g].fetch(p.residual + i);
    }
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) {
        const unsigned i = group_at<V, GROUPS>(g);
        unsigned bits = 0;
        if (i < count) {
            const int c = channel_at(i, p.by_inner, p.by_channels);
            float x[V], mean[V] = {}, inv_std[V];
            values[g].widen(x);
            load<V>(inv_std, p.inv_std + c);
            if (p.mean != nullptr) load<V>(mean, p.mean + c);
#pragma unroll
            for (int v = 0; v < V; ++v) x[v] = (x[v] - mean[v]) * inv_std[v];
            if (p.epilogue.factor != nullptr) {
                float factor[V], bias[V], residual[V];
                if (p.residual != nullptr) residuals[g].widen(residual);
                load<V>(factor, p.epilogue.factor + c);
                load<V>(bias, p.epilogue.bias + c);
#pragma unroll
                for (int v = 0; v < V; ++v) {
                    x[v] = x[v] * factor[v] + bias[v];
                    if (p.residual != nullptr) x[v] = residual[v] + x[v];
                    if (p.epilogue.relu) x[v] = positive(x[v]);
                    if (x[v] > p.epilogue.largest_zero) bits |= 1u << v;
                }
            }
            put<V>(p.y + i, x, p.accumulate);
        }
        if (p.mask != nullptr) put_bits<V>(p.mask, bits, i, count);
    }
}
LM_KERNEL_OF_ELEMENTS(normalize_v4, NormalizeArgs, 256, normalize_of<4>)
LM_KERNEL_OF_ELEMENTS(normalize_v1, NormalizeArgs, 256, normalize_of<1>)

}  // namespace lm
