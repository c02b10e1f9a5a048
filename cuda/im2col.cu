// Im2col: the windows of an image as channels; and some windows as rows of a matrix, for weight gradients.
//   x [N][height][width][channels], y [N][rows][columns][channels taps] float: y holds tap (r, s) of channel c at
//   c taps + first_tap + r kw + s, zero in the pad; taps is kh kw, or more if these are the taps of one frame
//   launch   im2col_forward, im2col_backward: one thread per element written, grid ceil(count / 256), block 256
//   traffic  4|x| + 4|y| bytes: bound by memory; backward reads y with a stride of kh kw floats
//   assumes  elements below 2^31
//   order    backward adds the taps in rising order
//   source   Caffe im2col.cu
#include "conv_problem.cuh"
#include "element.cuh"

using namespace lm;

struct Im2colArgs {
    float* y;        // dx
    const float* x;  // dy
    int height, width, channels, rows, columns;
    int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
    Divider by_channels, by_columns, by_rows;  // of the blob that is written
    Divider by_taps, by_kernel_w, by_stride_h, by_stride_w;
    int taps, first_tap;
    int count, accumulate;
};

// Element number `at` of the blob that is written; of y, of the taps of this launch.
struct Place {
    int item, row, column, channel;
};

LM_FN Place place_of(const Im2colArgs& p, int at) {
    const int pixel = divide(at, p.by_channels), line = divide(pixel, p.by_columns), item = divide(line, p.by_rows);
    return {item, line - item * static_cast<int>(p.by_rows.divisor),
            pixel - line * static_cast<int>(p.by_columns.divisor),
            at - pixel * static_cast<int>(p.by_channels.divisor)};
}

LM_KERNEL(im2col_forward, Im2colArgs, p, 256) {
    const int at = blockIdx.x * 256 + threadIdx.x;
    if (static_cast<unsigned>(at) >= static_cast<unsigned>(p.count)) return;
    const Place y = place_of(p, at);
    const int c = divide(y.channel, p.by_taps), tap = y.channel - c * static_cast<int>(p.by_taps.divisor);
    const int r = divide(tap, p.by_kernel_w), s = tap - r * p.kernel_w;
    const int h = y.row * p.stride_h - p.pad_h + r * p.dilation_h;
    const int w = y.column * p.stride_w - p.pad_w + s * p.dilation_w;
    const bool inside = static_cast<unsigned>(h) < static_cast<unsigned>(p.height) &&
                        static_cast<unsigned>(w) < static_cast<unsigned>(p.width);
    const int pixel = (y.item * p.rows + y.row) * p.columns + y.column;
    p.y[(pixel * p.channels + c) * p.taps + p.first_tap + tap] =
        inside ? p.x[((y.item * p.height + h) * p.width + w) * p.channels + c] : 0.0f;
}

// The window that has a pixel at distance `from` of the first one as this tap, or -1.
LM_FN int window_of(int from, const Divider& by_stride, int windows) {
    if (from < 0) return -1;
    const int window = divide(from, by_stride);
    return window * static_cast<int>(by_stride.divisor) == from && window < windows ? window : -1;
}

LM_KERNEL(im2col_backward, Im2colArgs, p, 256) {
    const int at = blockIdx.x * 256 + threadIdx.x;
    if (static_cast<unsigned>(at) >= static_cast<unsigned>(p.count)) return;
    const Place dx = place_of(p, at);
    float sum = p.accumulate ? p.y[at] : 0.0f;
    for (int r = 0; r < p.kernel_h; ++r) {
        const int row = window_of(dx.row + p.pad_h - r * p.dilation_h, p.by_stride_h, p.rows);
        for (int s = 0; row >= 0 && s < p.kernel_w; ++s) {
            const int column = window_of(dx.column + p.pad_w - s * p.dilation_w, p.by_stride_w, p.columns);
            if (column < 0) continue;
            const int pixel = (dx.item * p.rows + row) * p.columns + column;
            sum += p.x[(pixel * p.channels + dx.channel) * p.taps + p.first_tap + r * p.kernel_w + s];
        }
    }
    p.y[at] = sum;
}

// gather_windows: what a weight gradient needs of some windows, as matrices: the windows that a slice of the batch leaves
// to the next one (layermem/backends/cuda/products/wgrad_slices.py).
//   maps_rows  [count][K] float written     image_rows  [count][g][kh kw][C/g] float written, zero in the pad
//   maps [N][Ho][Wo][K], image [N][height][width][C] float, or both in 16 bits, read
//   launch   one thread per element written, grid ceil(count (K + kh kw C) / 256), block 256
//   traffic  8 bytes per element written
template <class T>
struct GatherWindowsArgs {
    float* maps_rows;
    float* image_rows;
    const T* maps;
    const T* image;
    int height, width, channels, outputs;  // of all groups
    int kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
    Divider by_row, by_group, by_channels, by_kernel_w;  // kh kw C, kh kw C/g, C/g, kw
    Divider by_outputs, by_window, by_columns;           // K, Ho Wo, Wo
    int first, count;                                    // windows, counted through all images
    Frames frames;
};

template <class T>
LM_FN void gather(const GatherWindowsArgs<T>& p) {
    const int at = blockIdx.x * 256 + threadIdx.x, i = at - p.count * p.outputs;
    if (i < 0) {
        const int row = divide(at, p.by_outputs);
        const int window = p.frames.of_maps().place_of_window(p.first + row, p.by_window);
        p.maps_rows[at] = widened(p.maps[(window - row) * p.outputs + at]);
        return;
    }
    const int row = divide(i, p.by_row), element = i - row * static_cast<int>(p.by_row.divisor);
    if (row >= p.count) return;
    const int group = divide(element, p.by_group), in_group = element - group * static_cast<int>(p.by_group.divisor);
    const int each = p.by_channels.divisor, tap = divide(in_group, p.by_channels), c = in_group - tap * each;
    const int r = divide(tap, p.by_kernel_w), s = tap - r * p.kernel_w;
    const int window = p.first + row, n = divide(window, p.by_window),
              rest = window - n * static_cast<int>(p.by_window.divisor);
    const int line = divide(rest, p.by_columns), column = rest - line * static_cast<int>(p.by_columns.divisor);
    const int h = line * p.stride_h - p.pad_h + r * p.dilation_h;
    const int w = column * p.stride_w - p.pad_w + s * p.dilation_w;
    const bool inside = static_cast<unsigned>(h) < static_cast<unsigned>(p.height) &&
                        static_cast<unsigned>(w) < static_cast<unsigned>(p.width);
    const int pixel = (p.frames.of_image().place_of(n) * p.height + h) * p.width + w;
    p.image_rows[i] = inside ? widened(p.image[pixel * p.channels + group * each + c]) : 0.0f;
}
LM_KERNEL_OF_ELEMENTS(gather_windows, GatherWindowsArgs, 256, gather)
