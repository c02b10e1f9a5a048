// Windows of a pooling: the places that one covers, those over a pixel, and what MAX makes of both (pooling.cu, and
// behind a BatchNorm batch_norm_pool.cuh).
#pragma once
#include "element.cuh"

namespace lm {

constexpr int POOL_THREADS = 256;

template <class T>
struct PoolArgs {
    T* y;                       // or dx
    const T* x;                 // or dy
    void* argmax;               // or null
    const unsigned char* kept;  // mask of the ReLU that made x (pointwise.cuh), read by backward, or null
    int height, width, channels, rows, columns;
    int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
    Divider by_runs, by_columns, by_rows;  // channels / V; columns and rows of what is written
    Divider by_stride_h, by_stride_w;
    int count;  // of what is written, over V
    int wide, accumulate, bottom_relu;
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

// The largest of what use(values, channel) makes of the V elements at each place of a window, and where it was.
template <int V, class T, class Use>
LM_FN void max_of_windows(const PoolArgs<T>& p, Use use) {
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
            use(values, at.channel);
            const int tap = (h - down.start) * p.kernel_w + w - right.start;
#pragma unroll
            for (int v = 0; v < V; ++v)
                if (values[v] > best[v]) best[v] = values[v], winner[v] = tap;
        }
    store<V>(p.y + i * V, best);
    if (p.argmax == nullptr) return;
    if (p.bottom_relu) {
#pragma unroll
        for (int v = 0; v < V; ++v)
            if (!(best[v] > 0.0f)) winner[v] = p.kernel_h * p.kernel_w;  // no tap
    }
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

// What argmax says of V channels from `window` on: their bytes in one word; or `window` where it holds ints.
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

// The gradient of the V elements at `at`: the sum over the windows that have their largest there.
template <int V, class T>
LM_FN void gather_gradient(const PoolArgs<T>& p, const Place& at, float (&sum)[V]) {
    Elements<V, T> gradients[WINDOWS];
    unsigned winners[WINDOWS];
    int taps[WINDOWS];
#pragma unroll
    for (int v = 0; v < V; ++v) sum[v] = 0.0f;
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
}

}  // namespace lm
