// Convolution, Deconvolution and InnerProduct: three sums over windows, each an implicit matrix product (gemm.cuh).
//
// Image [N,H,W,C], values of windows out [N,Ho,Wo,K], weights [K,kh,kw,C/g]; p is the place in the image under tap t of
// window o.  All in groups: image and window channels are both cut into g runs, run i meets run i.
//      correlate   out[o,k] = sum_tc image[p,c] w[k,t,c] + bias[k]     Convolution forward, Deconvolution data gradient;
//                  another blob may be added on the way out, and a ReLU follow that leaves its bits
//      spread      image[p,c] = sum_ok out[o,k] w[k,t,c] + bias[c]     Convolution data gradient, Deconvolution forward
//      weigh       dw[k,t,c] = sum_o out[o,k] image[p,c]               both weight gradients
// An InnerProduct has images of one pixel and windows of one tap.
//
//   launch   grid (tiles along M, tiles along N, groups x classes or groups x splits), block T::THREADS,
//            dynamic shared Product::STAGES stages of T::STAGE_FLOATS floats
//   traffic  each operand once per tile of the other side, through L2; bound by arithmetic from about 50 FLOP/byte on
//   assumes  tensors below 2^31 elements; _v4: channel runs, and so their addresses, are multiples of 16 bytes
//   source   Caffe's im2col + gemm, with the gather done on the way into shared memory
#pragma once
#include "gemm.cuh"

namespace lm {

// The geometry of all three.  channels and outputs are those of one group; pitches are a pixel's elements in memory.
struct Sliding {
    int images, height, width, channels, image_pitch;
    int rows, columns, outputs, out_pitch;
    int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
};

// What becomes of a sum on its way out: y = sum + bias + added, rectified.  Each is left out where its pointer is null.
struct Epilogue {
    const float* bias;    // [K]
    const float* added;   // laid out as y; y itself where sums are added to what is there, and y may lie on any other
    unsigned char* mask;  // a bit an element of y, set where y > 0 (map.cuh); K and K/g are multiples of 8
    int rectify;
};

struct CorrelateArgs {
    float* out;
    const float* image;
    const float* weights;
    Sliding g;
    Divider by_channels, by_kernel_w;
    Epilogue then;
};

// Writes a row of the warp's part of C and its bits: `row` is the place of the row's first element in `out` and `added`,
// or -1 where there is no such row; k its first column, of `outputs`.  All lanes of the warp come here.
template <class T, class Product>
LM_FN void finish_row(const Product& product, int i, float* out, int row, int k, int outputs, const float* bias,
                      const Epilogue& then) {
    constexpr int COLUMNS = 32 / Product::LANES;  // of a lane, among 32 that make a word of bits
#pragma unroll
    for (int word = 0; word < T::WARP_N / 32; ++word) {
        unsigned bits = 0;
#pragma unroll
        for (int j = word * COLUMNS; j < (word + 1) * COLUMNS; ++j) {
            const int column = product.n_of(j);
            if (row < 0 || k + column >= outputs) continue;
            const int at = row + k + column;
            float y = product.at(i, j) + (bias != nullptr ? bias[k + column] : 0.0f);
            if (then.added != nullptr) y = then.added[at] + y;
            if (then.rectify) y = positive(y);
            out[at] = y;
            if (y > 0.0f) bits |= 1u << column % 32;
        }
        if (then.mask == nullptr) continue;
#pragma unroll
        for (int distance = 1; distance < Product::LANES; distance *= 2) bits |= shuffle_xor(bits, distance);
        const int byte = lane_of_warp() % Product::LANES, column = k + warp_n<T>() + 32 * word + 8 * byte;
        if (byte < 4 && row >= 0 && column < outputs)
            then.mask[(row + column) / 8] = static_cast<unsigned char>(bits >> 8 * byte);
    }
}

// M = N Ho Wo windows, N = K/g, k = (r, s, c).
template <class T, class Product, int V>
LM_FN void correlate(const CorrelateArgs& p) {
    LM_DYN_SHARED(float, shared);
    LM_SHARED(int4, windows, [T::M]);  // (offset of the window's first tap, its row, its column, window or -1)
    const Sliding& g = p.g;
    const int group = blockIdx.z, first = blockIdx.x * T::M, n0 = blockIdx.y * T::N;
    const int count = g.images * g.rows * g.columns, depth = g.kernel_h * g.kernel_w * g.channels;
    for (int i = threadIdx.x; i < T::M; i += T::THREADS) {
        const int window = first + i, line = window / g.columns, image = line / g.rows;
        const int h = (line - image * g.rows) * g.stride_h - g.pad_h;
        const int w = (window - line * g.columns) * g.stride_w - g.pad_w;
        const bool there = window < count;
        windows[i] = make_int4(((image * g.height + h) * g.width + w) * g.image_pitch, there ? h : OUTSIDE, w,
                               there ? window : -1);
    }
    block_sync();
    const Taps taps = {p.image + group * g.channels, g.height, g.width, g.image_pitch, g.dilation_h, g.dilation_w,
                       depth, p.by_channels, p.by_kernel_w};
    const float* weights = p.weights + static_cast<long long>(group) * g.outputs * depth;
    Product product;
    multiply<T>(
        shared, depth,
        [&](float* a_tile, float* b_tile, int k0) {
            load_taps<T::M, T::THREADS, V>(a_tile, windows, taps, k0);
            load_rows<T::N, T::THREADS, V>(b_tile, weights, n0, g.outputs, depth, k0);
        },
        product);
    const float* bias = p.then.bias != nullptr ? p.then.bias + group * g.outputs : nullptr;
#pragma unroll
    for (int i = 0; i < Product::ROWS; ++i) {
        const int window = windows[product.m_of(i)].w;
        const int row = window < 0 ? -1 : window * g.out_pitch + group * g.outputs;
        finish_row<T>(product, i, p.out, row, n0, g.outputs, bias, p.then);
    }
}

struct SpreadArgs {
    float* image;
    const float* out;
    const float* weights;
    const float* bias;  // or null
    Sliding g;
    Divider by_outputs;
    int accumulate;
};

// One axis of a class: the pixels whose distance from the first window is `phase` modulo the stride.  Of the taps only
// first, first + every, .. meet them; under tap number i, pixel number q has window q + lead - i step.
struct Class {
    int phase, first, every, taps, lead, step, start, pixels;
};

LM_FN Class class_of(int phase, int kernel, int stride, int pad, int dilation, int size) {
    int every = 1;
    while (every * dilation % stride != 0) ++every;
    int first = 0;
    while (first < every && first * dilation % stride != phase) ++first;
    const bool none = first == every || first >= kernel;
    Class c = {phase, first, every, none ? 0 : (kernel - first + every - 1) / every, 0, every * dilation / stride, 0, 0};
    c.start = (phase - pad) % stride;  // the class's first pixel
    if (c.start < 0) c.start += stride;
    c.pixels = c.start < size ? (size - c.start + stride - 1) / stride : 0;
    c.lead = none ? 0 : (c.start + pad - first * dilation) / stride;
    return c;
}

// For each class: M = N Hc Wc pixels, N = C/g, k = (tap of the class, output).  Every pixel is written once, by its class.
template <class T, class Product, int V>
LM_FN void spread(const SpreadArgs& p) {
    LM_DYN_SHARED(float, shared);
    LM_SHARED(int4, pixels, [T::M]);  // (offset of the window under tap 0, its row, its column, pixel or -1)
    LM_SHARED(Class, axes, [2]);      // rows and columns; in shared memory, as is `taps`, to leave registers to the product
    LM_SHARED(Taps, taps, [1]);
    const Sliding& g = p.g;
    const Class &down = axes[0], &right = axes[1];
    const int classes = g.stride_h * g.stride_w, group = blockIdx.z / classes;
    if (threadIdx.x == 0) {
        const int phase = blockIdx.z % classes;
        axes[0] = class_of(phase / g.stride_w, g.kernel_h, g.stride_h, g.pad_h, g.dilation_h, g.height);
        axes[1] = class_of(phase % g.stride_w, g.kernel_w, g.stride_w, g.pad_w, g.dilation_w, g.width);
        taps[0] = {p.out + group * g.outputs, g.rows, g.columns, g.out_pitch, -down.step, -right.step,
                   down.taps * right.taps * g.outputs, p.by_outputs, short_divider(right.taps > 0 ? right.taps : 1)};
    }
    block_sync();
    const int first = blockIdx.x * T::M, n0 = blockIdx.y * T::N, count = g.images * down.pixels * right.pixels;
    if (first >= count) return;  // classes differ in size
    for (int i = threadIdx.x; i < T::M; i += T::THREADS) {
        const int pixel = first + i, line = pixel / right.pixels, image = line / down.pixels;
        const int h = line - image * down.pixels, w = pixel - line * right.pixels;
        const int row = h + down.lead, column = w + right.lead;
        const int place = (image * g.height + h * g.stride_h + down.start) * g.width + w * g.stride_w + right.start;
        const bool there = pixel < count;
        pixels[i] = make_int4(((image * g.rows + row) * g.columns + column) * g.out_pitch, there ? row : OUTSIDE, column,
                              there ? place : -1);
    }
    block_sync();
    const int taps_all = g.kernel_h * g.kernel_w;
    const float* weights = p.weights + static_cast<long long>(group) * g.outputs * taps_all * g.channels;
    const int c = n0 + my_column<T::N, V>();
    const auto weight = [&](int k, bool& inside) {
        const int tap = divide(k, p.by_outputs), output = k - tap * g.outputs;
        const int r = divide(tap, taps[0].across), s = tap - r * right.taps;
        inside = inside && k < taps[0].depth;
        const int t = (down.first + r * down.every) * g.kernel_w + right.first + s * right.every;
        return (output * taps_all + t) * g.channels + c;
    };
    Product product;
    multiply<T>(
        shared, taps[0].depth,
        [&](float* a_tile, float* b_tile, int k0) {
            load_taps<T::M, T::THREADS, V>(a_tile, pixels, taps[0], k0);
            load_columns<T::N, T::THREADS, V>(b_tile, weights, c < g.channels, k0, weight);
        },
        product);
    constexpr int RUN = V < Product::RUN ? V : Product::RUN;
#pragma unroll
    for (int i = 0; i < Product::ROWS; ++i) {
        const int pixel = pixels[product.m_of(i)].w;
        if (pixel < 0) continue;
#pragma unroll
        for (int j = 0; j < Product::COLUMNS; j += RUN) {
            const int channel = n0 + product.n_of(j);
            if (channel >= g.channels) continue;
            float values[RUN];
#pragma unroll
            for (int e = 0; e < RUN; ++e)
                values[e] = product.at(i, j + e) + (p.bias != nullptr ? p.bias[group * g.channels + channel + e] : 0.0f);
            put<RUN>(p.image + pixel * g.image_pitch + group * g.channels + channel, values, p.accumulate);
        }
    }
}

struct WeighArgs {
    float* dw;  // [K,kh,kw,C/g], or `splits` of them one behind the other
    const float* out;
    const float* image;
    Sliding g;
    Divider by_window, by_columns, by_channels, by_kernel_w;  // Ho Wo, Wo, C/g, kw
    int splits, images_each;  // split i sums over images [i images_each, (i+1) images_each)
    int accumulate;
};

// M = K/g, N = (r, s, c), k = windows of the split's images.
template <class T, class Product, int V>
LM_FN void weigh(const WeighArgs& p) {
    LM_DYN_SHARED(float, shared);
    const Sliding& g = p.g;
    const int group = blockIdx.z / p.splits, split = blockIdx.z % p.splits;
    const int m0 = blockIdx.x * T::M, n0 = blockIdx.y * T::N;
    const int each = g.rows * g.columns, width = g.kernel_h * g.kernel_w * g.channels;
    const int begin = split * p.images_each, end = min(begin + p.images_each, g.images);
    const int start = begin * each, depth = max(end - begin, 0) * each;

    const int m = m0 + my_column<T::M, V>();
    const auto value = [&](int k, bool& inside) {
        inside = inside && k < depth;
        return (start + k) * g.out_pitch + group * g.outputs + m;
    };
    const int n = n0 + my_column<T::N, V>(), tap = divide(n, p.by_channels), c = n - tap * g.channels;
    const int r = divide(tap, p.by_kernel_w), s = tap - r * g.kernel_w;
    const int down = r * g.dilation_h - g.pad_h, right = s * g.dilation_w - g.pad_w;
    const auto seen = [&](int k, bool& inside) {
        const int window = start + k, image = divide(window, p.by_window), rest = window - image * each;
        const int line = divide(rest, p.by_columns), column = rest - line * g.columns;
        const int h = line * g.stride_h + down, w = column * g.stride_w + right;
        inside = inside && k < depth && static_cast<unsigned>(h) < static_cast<unsigned>(g.height) &&
                 static_cast<unsigned>(w) < static_cast<unsigned>(g.width);
        return ((image * g.height + h) * g.width + w) * g.image_pitch + group * g.channels + c;
    };
    Product product;
    multiply<T>(
        shared, depth,
        [&](float* a_tile, float* b_tile, int k0) {
            load_columns<T::M, T::THREADS, V>(a_tile, p.out, m < g.outputs, k0, value);
            load_columns<T::N, T::THREADS, V>(b_tile, p.image, n < width, k0, seen);
        },
        product);
    float* dw = p.dw + static_cast<long long>(blockIdx.z / p.splits + split * (gridDim.z / p.splits)) * g.outputs * width;
    constexpr int RUN = V < Product::RUN ? V : Product::RUN;
#pragma unroll
    for (int i = 0; i < Product::ROWS; ++i) {
        const int k = m0 + product.m_of(i);
        if (k >= g.outputs) continue;
#pragma unroll
        for (int j = 0; j < Product::COLUMNS; j += RUN) {
            const int column = n0 + product.n_of(j);
            if (column >= width) continue;
            float values[RUN];
#pragma unroll
            for (int e = 0; e < RUN; ++e) values[e] = product.at(i, j + e);
            put<RUN>(dw + k * width + column, values, p.accumulate);
        }
    }
}

// ---- instances -------------------------------------------------------------------------------------------------------

#define LM_SLIDING(tile, T, Product, V)                                          \
    LM_KERNEL(correlate_##tile##_v##V, CorrelateArgs, p, T::THREADS, T::BLOCKS) { \
        correlate<T, Product<T, true, true>, V>(p);                              \
    }                                                                            \
    LM_KERNEL(spread_##tile##_v##V, SpreadArgs, p, T::THREADS, T::BLOCKS) {      \
        spread<T, Product<T, true, false>, V>(p);                                \
    }                                                                            \
    LM_KERNEL(weigh_##tile##_v##V, WeighArgs, p, T::THREADS, T::BLOCKS) {        \
        weigh<T, Product<T, false, false>, V>(p);                                \
    }

// The four tiles T128x128 .., for operands in runs of 16 bytes and for any.
#define LM_SLIDING_TILES(Product)             \
    LM_SLIDING(128x128, T128x128, Product, 4) \
    LM_SLIDING(128x64, T128x64, Product, 4)   \
    LM_SLIDING(64x64, T64x64, Product, 4)     \
    LM_SLIDING(128x32, T128x32, Product, 4)   \
    LM_SLIDING(128x128, T128x128, Product, 1) \
    LM_SLIDING(128x64, T128x64, Product, 1)   \
    LM_SLIDING(64x64, T64x64, Product, 1)     \
    LM_SLIDING(128x32, T128x32, Product, 1)

}  // namespace lm
