// Pooling: the largest, or the mean, of each window.
//   y [N,Ho,Wo,C] float, argmax [N,Ho,Wo,C] byte or int, written     x [N,H,W,C] float read
//   dx [N,H,W,C] float written or added to                           dy, argmax read
//   x, y, dx, dy in 16 bits (element.cuh) in kernels whose names end in the type's
//   launch   pool_*: one thread per V channels of a window (forward) or of a pixel (backward): grid
//            ceil(count / (256 V)), block 256; the mask and STOCHASTIC forward with V = 1
//   traffic  forward 4|x| + 8|y| bytes, backward 4|dx| + up to ceil(kernel/stride)^2 5|y|, mostly from L2: bound by
//            memory
//   assumes  every window meets the image (layers/pooling.py guarantees it); _v4: C a multiple of 4
//   ties     the first in row-major order wins, so a recompute gives back the same bits
//   backward gathers: each pixel visits the windows over it, row by row, and is written once
//   source   Caffe src/caffe/layers/pooling_layer.cu
#include "element.cuh"
#include "step_scalars.cuh"

using namespace lm;

constexpr int POOL_THREADS = 256;

template <class T>
struct PoolArgs {
    T* y;          // or dx
    const T* x;    // or dy
    void* argmax;  // or null
    int height, width, channels, rows, columns;
    int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
    Divider by_runs, by_columns, by_rows;  // channels / V; columns and rows of what is written
    Divider by_stride_h, by_stride_w;
    int count;  // of what is written, over V
    int wide, accumulate;
};

struct Place {
    int item, row, column, channel;
};

template <int V, class T>
LM_FN Place place_of(const PoolArgs<T>& p, unsigned i) {
    const int pixel = divide(i, p.by_runs), line = divide(pixel, p.by_columns), item = divide(line, p.by_rows);
    return {item, line - item * static_cast<int>(p.by_rows.divisor),
            pixel - line * static_cast<int>(p.by_columns.divisor), static_cast<int>(i - pixel * p.by_runs.divisor) * V};
}

// Rows [begin, end) of the image that window `at` covers; `start` is its first, in the padding maybe.
struct Span {
    int start, begin, end;
};

LM_FN Span span_of(int at, int kernel, int stride, int pad, int size) {
    const int start = at * stride - pad;
    return {start, max(start, 0), min(start + kernel, size)};
}

// By how many elements along one axis a mean divides: the window clipped to the padded image.
LM_FN int clipped(int at, int kernel, int stride, int pad, int size) {
    const int start = at * stride - pad;
    return min(start + kernel, size + pad) - start;
}

constexpr int WINDOWS = 4;  // over a pixel, whose loads are in flight together

// The windows over pixel `at`, in the order of memory: load(slot, offset of the window's element, row, column) for up
// to WINDOWS of them, then use(slot) for each.
template <class T, class Load, class Use>
LM_FN void windows_over(const PoolArgs<T>& p, const Place& at, Load load, Use use) {
    const int h = at.row + p.pad_h, w = at.column + p.pad_w;
    const int first_row = h < p.kernel_h ? 0 : divide(h - p.kernel_h, p.by_stride_h) + 1;
    const int first_column = w < p.kernel_w ? 0 : divide(w - p.kernel_w, p.by_stride_w) + 1;
    const int last_row = min(static_cast<int>(divide(h, p.by_stride_h)), p.rows - 1);
    const int last_column = min(static_cast<int>(divide(w, p.by_stride_w)), p.columns - 1);
    const int count = max(last_row - first_row + 1, 0) * max(last_column - first_column + 1, 0);
    int row = first_row, column = first_column;
#pragma unroll 1
    for (int left = count; left > 0; left -= WINDOWS) {
#pragma unroll
        for (int slot = 0; slot < WINDOWS; ++slot) {
            if (slot < left)
                load(slot, ((at.item * p.rows + row) * p.columns + column) * p.channels + at.channel, row, column);
            const bool ends = column == last_column;
            row += ends;
            column = ends ? first_column : column + 1;
        }
#pragma unroll
        for (int slot = 0; slot < WINDOWS; ++slot)
            if (slot < left) use(slot);
    }
}

// Returns the argmax of V channels from `window` on: their bytes in one word; or `window` if it holds ints.
template <int V, class T>
LM_FN unsigned load_winners(const PoolArgs<T>& p, int window) {
    if (p.wide) return static_cast<unsigned>(window);
    const unsigned char* bytes = static_cast<const unsigned char*>(p.argmax) + window;
    return V == 4 ? *reinterpret_cast<const unsigned*>(bytes) : *bytes;
}

template <class T>
LM_FN int winner_of(const PoolArgs<T>& p, unsigned winners, int v) {
    return p.wide ? static_cast<const int*>(p.argmax)[winners + v] : static_cast<int>(winners >> 8 * v & 255u);
}

template <int V, class T>
LM_FN void max_forward(const PoolArgs<T>& p) {
    const unsigned i = blockIdx.x * POOL_THREADS + threadIdx.x;
    if (i >= static_cast<unsigned>(p.count)) return;
    const Place at = place_of<V>(p, i);
    const Span down = span_of(at.row, p.kernel_h, p.stride_h, p.pad_h, p.height);
    const Span right = span_of(at.column, p.kernel_w, p.stride_w, p.pad_w, p.width);
    float best[V];
    int winner[V];
#pragma unroll
    for (int v = 0; v < V; ++v) best[v] = -infinity(), winner[v] = 0;
    for (int h = down.begin; h < down.end; ++h)
#pragma unroll 3  // loads in flight; one more would not fit into 40 registers
        for (int w = right.begin; w < right.end; ++w) {
            float values[V];
            load<V>(values, p.x + ((at.item * p.height + h) * p.width + w) * p.channels + at.channel);
            const int tap = (h - down.start) * p.kernel_w + w - right.start;
#pragma unroll
            for (int v = 0; v < V; ++v)
                if (values[v] > best[v]) best[v] = values[v], winner[v] = tap;
        }
    store<V>(p.y + i * V, best);
    if (p.argmax == nullptr) return;
    if (p.wide) {
#pragma unroll
        for (int v = 0; v < V; ++v) static_cast<int*>(p.argmax)[i * V + v] = winner[v];
    } else if constexpr (V == 4) {
        static_cast<unsigned*>(p.argmax)[i] = static_cast<unsigned>(winner[0] | winner[1] << 8 | winner[2] << 16) |
                                              static_cast<unsigned>(winner[3]) << 24;
    } else {
        static_cast<unsigned char*>(p.argmax)[i] = static_cast<unsigned char>(winner[0]);
    }
}

constexpr int PLACES = 4;  // of a row of a window, whose loads are in flight together

template <int V, class T>
LM_FN void average_forward(const PoolArgs<T>& p) {
    const unsigned i = blockIdx.x * POOL_THREADS + threadIdx.x;
    if (i >= static_cast<unsigned>(p.count)) return;
    const Place at = place_of<V>(p, i);
    const Span down = span_of(at.row, p.kernel_h, p.stride_h, p.pad_h, p.height);
    const Span right = span_of(at.column, p.kernel_w, p.stride_w, p.pad_w, p.width);
    float sum[V] = {};
    for (int h = down.begin; h < down.end; ++h)
#pragma unroll 1
        for (int w = right.begin; w < right.end; w += PLACES) {
            Elements<V, T> next[PLACES];
            const T* from = p.x + ((at.item * p.height + h) * p.width + w) * p.channels + at.channel;
#pragma unroll
            for (int i = 0; i < PLACES; ++i)
                if (w + i < right.end) next[i].fetch(from + i * p.channels);
#pragma unroll
            for (int i = 0; i < PLACES; ++i) {
                if (w + i >= right.end) continue;
                float values[V];
                next[i].widen(values);
#pragma unroll
                for (int v = 0; v < V; ++v) sum[v] += values[v];
            }
        }
    const int elements = clipped(at.row, p.kernel_h, p.stride_h, p.pad_h, p.height) *
                         clipped(at.column, p.kernel_w, p.stride_w, p.pad_w, p.width);
#pragma unroll
    for (int v = 0; v < V; ++v) sum[v] = sum[v] / static_cast<float>(elements);
    store<V>(p.y + i * V, sum);
}

// The gradient of a pixel is the sum over the windows that have their largest there.
template <int V, class T>
LM_FN void max_backward(const PoolArgs<T>& p) {
    const unsigned i = blockIdx.x * POOL_THREADS + threadIdx.x;
    if (i >= static_cast<unsigned>(p.count)) return;
    const Place at = place_of<V>(p, i);
    float sum[V] = {};
    Elements<V, T> gradients[WINDOWS];
    unsigned winners[WINDOWS];
    int taps[WINDOWS];
    windows_over(
        p, at,
        [&](int slot, int window, int row, int column) {
            taps[slot] = (at.row + p.pad_h - row * p.stride_h) * p.kernel_w + at.column + p.pad_w - column * p.stride_w;
            gradients[slot].fetch(p.x + window);
            winners[slot] = load_winners<V>(p, window);
        },
        [&](int slot) {
            float values[V];
            gradients[slot].widen(values);
#pragma unroll
            for (int v = 0; v < V; ++v) sum[v] += winner_of(p, winners[slot], v) == taps[slot] ? values[v] : 0.0f;
        });
    put<V>(p.y + i * V, sum, p.accumulate);
}

template <int V, class T>
LM_FN void average_backward(const PoolArgs<T>& p) {
    const unsigned i = blockIdx.x * POOL_THREADS + threadIdx.x;
    if (i >= static_cast<unsigned>(p.count)) return;
    const Place at = place_of<V>(p, i);
    float sum[V] = {};
    Elements<V, T> gradients[WINDOWS];
    int elements[WINDOWS];
    windows_over(
        p, at,
        [&](int slot, int window, int row, int column) {
            elements[slot] = clipped(row, p.kernel_h, p.stride_h, p.pad_h, p.height) *
                             clipped(column, p.kernel_w, p.stride_w, p.pad_w, p.width);
            gradients[slot].fetch(p.x + window);
        },
        [&](int slot) {
            float values[V];
            gradients[slot].widen(values);
#pragma unroll
            for (int v = 0; v < V; ++v) sum[v] += values[v] / static_cast<float>(elements[slot]);
        });
    put<V>(p.y + i * V, sum, p.accumulate);
}

#define LM_POOLING(name)                                                     \
    LM_KERNEL_OF_ELEMENTS(pool_##name##_v4, PoolArgs, POOL_THREADS, name<4>) \
    LM_KERNEL_OF_ELEMENTS(pool_##name##_v1, PoolArgs, POOL_THREADS, name<1>)

LM_POOLING(max_forward)
LM_POOLING(average_forward)
LM_POOLING(max_backward)
LM_POOLING(average_backward)

// ---- mask, STOCHASTIC: one thread per window -------------------------------------------------------------------------

// pool_max_mask: y = the index within the plane height x width of the element that argmax names.
//   y [N,Ho,Wo,C] float written     argmax [N,Ho,Wo,C] read     launch   grid ceil(count / 256), block 256
LM_KERNEL(pool_max_mask, PoolArgs<float>, p, POOL_THREADS) {
    const unsigned i = blockIdx.x * POOL_THREADS + threadIdx.x;
    if (i >= static_cast<unsigned>(p.count)) return;
    const Place at = place_of<1>(p, i);
    const int tap = p.wide ? static_cast<const int*>(p.argmax)[i] : static_cast<const unsigned char*>(p.argmax)[i];
    const int r = tap / p.kernel_w;
    const int h = at.row * p.stride_h - p.pad_h + r, w = at.column * p.stride_w - p.pad_w + tap - r * p.kernel_w;
    p.y[i] = static_cast<float>(h * p.width + w);
}

// Calls visit(element, tap) for the elements of window i, row by row, until it returns false.
template <class Visit>
LM_FN void visit_window(const PoolArgs<float>& p, unsigned i, Visit visit) {
    const Place at = place_of<1>(p, i);
    const Span down = span_of(at.row, p.kernel_h, p.stride_h, p.pad_h, p.height);
    const Span right = span_of(at.column, p.kernel_w, p.stride_w, p.pad_w, p.width);
    for (int h = down.begin; h < down.end; ++h)
        for (int w = right.begin; w < right.end; ++w)
            if (!visit(p.x[((at.item * p.height + h) * p.width + w) * p.channels + at.channel],
                       (h - down.start) * p.kernel_w + w - right.start))
                return;
}

// pool_stochastic_forward: the first element at which the running sum reaches a random part of the whole, the last one
// where it never does.
//   y, argmax [N,Ho,Wo,C] written     x [N,H,W,C] float, step read     launch   grid ceil(count / 256), block 256
//   source   layermem/layers/pooling.py; the random word of window i as in dropout.cu
struct StochasticArgs {
    PoolArgs<float> of;
    const StepScalars* step;
    unsigned first;  // window of the batch
    unsigned stream;
};

LM_KERNEL(pool_stochastic_forward, StochasticArgs, p, POOL_THREADS) {
    const unsigned i = blockIdx.x * POOL_THREADS + threadIdx.x;
    if (i >= static_cast<unsigned>(p.of.count)) return;
    const unsigned window = p.first + i;
    const StepScalars now = *p.step;
    const uint4 random = philox(make_uint4(window / 4, 0, now.step_low, now.step_high), now.seed, p.stream);
    const unsigned e = window % 4, word = e == 0 ? random.x : e == 1 ? random.y : e == 2 ? random.z : random.w;
    float total = 0.0f, partial = 0.0f, y = 0.0f;
    visit_window(p.of, i, [&](float x, int) {
        total += x;
        return true;
    });
    const float threshold = static_cast<float>(word) * 2.3283064365386963e-10f * total;  // 2^-32
    int winner = 0;
    visit_window(p.of, i, [&](float x, int tap) {
        partial += x;
        y = x;
        winner = tap;
        return !(partial >= threshold);
    });
    p.of.y[i] = y;
    if (p.of.argmax == nullptr) return;
    if (p.of.wide)
        static_cast<int*>(p.of.argmax)[i] = winner;
    else
        static_cast<unsigned char*>(p.of.argmax)[i] = static_cast<unsigned char>(winner);
}

// pool_stochastic_average: y = sum x^2 / sum x, or 0 where that sum is not positive.
//   y [N,Ho,Wo,C] float written     x [N,H,W,C] float read     launch   grid ceil(count / 256), block 256
LM_KERNEL(pool_stochastic_average, PoolArgs<float>, p, POOL_THREADS) {
    const unsigned i = blockIdx.x * POOL_THREADS + threadIdx.x;
    if (i >= static_cast<unsigned>(p.count)) return;
    float total = 0.0f, squares = 0.0f;
    visit_window(p, i, [&](float x, int) {
        total += x;
        squares += x * x;
        return true;
    });
    p.y[i] = total > 0.0f ? squares / total : 0.0f;
}
