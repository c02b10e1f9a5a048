// conv_fprop, conv_dgrad, conv_wgrad: Convolution, Deconvolution and InnerProduct as implicit GEMMs
// (implicit_gemm.cuh).
//
// Notation: image [N,H,W,C], out [N,Ho,Wo,K], weights [K,kh,kw,C/g]; p(o,t) is the image pixel under tap t of output
// pixel o, outside the image it reads as zero.  Channels of both sides are cut into g groups; group i of one meets
// group i of the other.  An InnerProduct is an image of one pixel with a kernel of one tap.
//      conv_fprop   out[o,k] = sum_tc image[p,c] w[k,t,c] + bias[k], then residual, ReLU and its mask
//                   Convolution and InnerProduct fprop, Deconvolution dgrad
//      conv_dgrad   image[p,c] = sum_ok out[o,k] w[k,t,c] + bias[c]        Convolution dgrad, Deconvolution fprop
//      conv_wgrad   dw[k,t,c] = sum_o out[o,k] image[p,c]                  all weight gradients
//
//   launch   grid (tiles along M, tiles along N, groups x phases or groups x splits), block T::THREADS,
//            dynamic shared memory Product::STAGES stages of T::STAGE_FLOATS floats
//   traffic  each operand once per tile of the other side, through L2; bound by arithmetic from about 50 FLOP/byte on
//   assumes  tensors below 2^31 elements; _v4: channel runs, and so their addresses, are multiples of 16 bytes
//   ties     none; every sum runs in the order of k, whatever the tile
//   source   Caffe base_conv_layer.cpp (im2col and gemm), with the gather done on the way into shared memory
#pragma once
#include "implicit_gemm.cuh"

namespace lm {

// Geometry of all three kernels.  channels and outputs are per group; a pitch is the elements of a whole pixel in
// memory.
struct ConvProblem {
    int images, height, width, channels, image_pitch;
    int maps_h, maps_w, outputs, maps_pitch;
    int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
};

// Epilogue of conv_fprop: y = relu(sum + bias + residual).  A null pointer leaves its term out.
struct Epilogue {
    const float* bias;      // [K]
    const float* residual;  // laid out as y; y itself to accumulate, or another blob, which y may overlay
    unsigned char* mask;    // one bit per element of y, set where y > 0 (pointwise.cuh); K and K/g are multiples of 8
    int relu;
};

struct ConvFpropArgs {
    float* maps;
    const float* image;
    const float* filter;
    ConvProblem problem;
    Divider by_channels, by_kernel_w;
    Epilogue epilogue;
};

// Applies the epilogue to row i of the warp's tile of C and stores it.  `row` is the offset of the row's first element
// in out and residual, or -1 for a row beyond the problem; k is its first column, of `outputs`.  Called by all lanes.
template <class T, class Product>
LM_FN void store_row(const Product& product, int i, float* maps, int row, int k, int outputs, const float* bias,
                     const Epilogue& epilogue) {
    constexpr int COLUMNS = 32 / Product::LANES;  // of a lane, among the 32 of a word of mask bits
#pragma unroll
    for (int word = 0; word < T::WARP_N / 32; ++word) {
        unsigned bits = 0;
#pragma unroll
        for (int j = word * COLUMNS; j < (word + 1) * COLUMNS; ++j) {
            const int column = product.n_of(j);
            if (row < 0 || k + column >= outputs) continue;
            const int at = row + k + column;
            float y = product.at(i, j) + (bias != nullptr ? bias[k + column] : 0.0f);
            if (epilogue.residual != nullptr) y = epilogue.residual[at] + y;
            if (epilogue.relu) y = positive(y);
            maps[at] = y;
            if (y > 0.0f) bits |= 1u << column % 32;
        }
        if (epilogue.mask == nullptr) continue;
#pragma unroll
        for (int distance = 1; distance < Product::LANES; distance *= 2) bits |= shuffle_xor(bits, distance);
        const int byte = lane_of_warp() % Product::LANES, column = k + warp_n<T>() + 32 * word + 8 * byte;
        if (byte < 4 && row >= 0 && column < outputs)
            epilogue.mask[(row + column) / 8] = static_cast<unsigned char>(bits >> 8 * byte);
    }
}

// conv_fprop: M = N Ho Wo windows, N = K/g, k = (r, s, c).
template <class T, class Product, int V>
LM_FN void conv_fprop(const ConvFpropArgs& p) {
    LM_DYN_SHARED(float, shared);
    LM_SHARED(int4, windows, [T::M]);  // (offset of the window's first tap, its row, its column, window or -1)
    const ConvProblem& conv = p.problem;
    const int group = blockIdx.z, first = blockIdx.x * T::M, n0 = blockIdx.y * T::N;
    const int count = conv.images * conv.maps_h * conv.maps_w, depth = conv.kernel_h * conv.kernel_w * conv.channels;
    for (int i = threadIdx.x; i < T::M; i += T::THREADS) {
        const int window = first + i, line = window / conv.maps_w, image = line / conv.maps_h;
        const int h = (line - image * conv.maps_h) * conv.stride_h - conv.pad_h;
        const int w = (window - line * conv.maps_w) * conv.stride_w - conv.pad_w;
        const bool there = window < count;
        windows[i] = make_int4(((image * conv.height + h) * conv.width + w) * conv.image_pitch, there ? h : OUTSIDE, w,
                               there ? window : -1);
    }
    block_sync();
    const Taps taps = {p.image + group * conv.channels,
                       conv.height,
                       conv.width,
                       conv.image_pitch,
                       conv.dilation_h,
                       conv.dilation_w,
                       depth,
                       p.by_channels,
                       p.by_kernel_w};
    const float* filter = p.filter + static_cast<long long>(group) * conv.outputs * depth;
    Product product;
    multiply<T>(
        shared, depth,
        [&](float* a_tile, float* b_tile, int k0) {
            load_taps<T::M, T::THREADS, V>(a_tile, windows, taps, k0);
            load_rows<T::N, T::THREADS, V>(b_tile, filter, n0, conv.outputs, depth, k0);
        },
        product);
    const float* bias = p.epilogue.bias != nullptr ? p.epilogue.bias + group * conv.outputs : nullptr;
#pragma unroll
    for (int i = 0; i < Product::ROWS; ++i) {
        const int window = windows[product.m_of(i)].w;
        const int row = window < 0 ? -1 : window * conv.maps_pitch + group * conv.outputs;
        store_row<T>(product, i, p.maps, row, n0, conv.outputs, bias, p.epilogue);
    }
}

struct ConvDgradArgs {
    float* image;
    const float* maps;
    const float* filter;
    const float* bias;  // or null
    ConvProblem problem;
    Divider by_outputs;
    int accumulate;
    int resume;  // the sums begin with those in image: it holds the ones over the outputs before these
};

// One axis of a phase of strided dgrad: the pixels whose distance from the first window is `phase` modulo the stride.
// Only taps first, first + every, .. reach them; under tap number i, pixel number q has window q + lead - i step.
struct PhaseAxis {
    int phase, first, every, taps, lead, step, start, pixels;
};

LM_FN PhaseAxis phase_axis(int phase, int kernel, int stride, int pad, int dilation, int size) {
    int every = 1;
    while (every * dilation % stride != 0) ++every;
    int first = 0;
    while (first < every && first * dilation % stride != phase) ++first;
    const bool none = first == every || first >= kernel;
    PhaseAxis c = {phase, first, every, none ? 0 : (kernel - first + every - 1) / every, 0, every * dilation / stride,
                   0,     0};
    c.start = (phase - pad) % stride;  // first pixel of the phase
    if (c.start < 0) c.start += stride;
    c.pixels = c.start < size ? (size - c.start + stride - 1) / stride : 0;
    c.lead = none ? 0 : (c.start + pad - first * dilation) / stride;
    return c;
}

// conv_dgrad, per phase: M = N Hp Wp pixels, N = C/g, k = (tap of the phase, output).  Each pixel belongs to one phase
// and is written once.  With one tap, the outputs may be a band of whole stages (but for the last band): bands that
// resume each other's sums add in the order of all outputs.
template <class T, class Product, int V>
LM_FN void conv_dgrad(const ConvDgradArgs& p) {
    LM_DYN_SHARED(float, shared);
    LM_SHARED(int4, pixels, [T::M]);  // (offset of the window under tap 0, its row, its column, pixel or -1)
    // Rows and columns; in shared memory, as is `taps`, to leave registers to the product.
    LM_SHARED(PhaseAxis, axes, [2]);
    LM_SHARED(Taps, taps, [1]);
    const ConvProblem& conv = p.problem;
    const PhaseAxis &down = axes[0], &right = axes[1];
    const int phases = conv.stride_h * conv.stride_w, group = blockIdx.z / phases;
    if (threadIdx.x == 0) {
        const int phase = blockIdx.z % phases;
        axes[0] =
            phase_axis(phase / conv.stride_w, conv.kernel_h, conv.stride_h, conv.pad_h, conv.dilation_h, conv.height);
        axes[1] =
            phase_axis(phase % conv.stride_w, conv.kernel_w, conv.stride_w, conv.pad_w, conv.dilation_w, conv.width);
        taps[0] = {p.maps + group * conv.outputs,
                   conv.maps_h,
                   conv.maps_w,
                   conv.maps_pitch,
                   -down.step,
                   -right.step,
                   down.taps * right.taps * conv.outputs,
                   p.by_outputs,
                   short_divider(right.taps > 0 ? right.taps : 1)};
    }
    block_sync();
    const int first = blockIdx.x * T::M, n0 = blockIdx.y * T::N, count = conv.images * down.pixels * right.pixels;
    if (first >= count) return;  // phases differ in size
    for (int i = threadIdx.x; i < T::M; i += T::THREADS) {
        const int pixel = first + i, line = pixel / right.pixels, image = line / down.pixels;
        const int h = line - image * down.pixels, w = pixel - line * right.pixels;
        const int row = h + down.lead, column = w + right.lead;
        const int place =
            (image * conv.height + h * conv.stride_h + down.start) * conv.width + w * conv.stride_w + right.start;
        const bool there = pixel < count;
        pixels[i] = make_int4(((image * conv.maps_h + row) * conv.maps_w + column) * conv.maps_pitch,
                              there ? row : OUTSIDE, column, there ? place : -1);
    }
    block_sync();
    const int taps_all = conv.kernel_h * conv.kernel_w;
    const float* filter = p.filter + static_cast<long long>(group) * conv.outputs * taps_all * conv.channels;
    const int c = n0 + my_column<T::N, V>();
    const auto weight = [&](int k, bool& inside) {
        const int tap = divide(k, p.by_outputs), output = k - tap * conv.outputs;
        const int r = divide(tap, taps[0].across), s = tap - r * right.taps;
        inside = inside && k < taps[0].depth;
        const int t = (down.first + r * down.every) * conv.kernel_w + right.first + s * right.every;
        return (output * taps_all + t) * conv.channels + c;
    };
    Product product;
    constexpr int RUN = V < Product::RUN ? V : Product::RUN;
    if (p.resume) {
#pragma unroll
        for (int i = 0; i < Product::ROWS; ++i) {
            const int pixel = pixels[product.m_of(i)].w;
            if (pixel < 0) continue;
#pragma unroll
            for (int j = 0; j < Product::COLUMNS; j += RUN) {
                const int channel = n0 + product.n_of(j);
                if (channel >= conv.channels) continue;
                float values[RUN];
                load<RUN>(values, p.image + pixel * conv.image_pitch + group * conv.channels + channel);
#pragma unroll
                for (int e = 0; e < RUN; ++e) product.set(i, j + e, values[e]);
            }
        }
    }
    multiply<T>(
        shared, taps[0].depth,
        [&](float* a_tile, float* b_tile, int k0) {
            load_taps<T::M, T::THREADS, V>(a_tile, pixels, taps[0], k0);
            load_columns<T::N, T::THREADS, V>(b_tile, filter, c < conv.channels, k0, weight);
        },
        product);
#pragma unroll
    for (int i = 0; i < Product::ROWS; ++i) {
        const int pixel = pixels[product.m_of(i)].w;
        if (pixel < 0) continue;
#pragma unroll
        for (int j = 0; j < Product::COLUMNS; j += RUN) {
            const int channel = n0 + product.n_of(j);
            if (channel >= conv.channels) continue;
            float values[RUN];
#pragma unroll
            for (int e = 0; e < RUN; ++e)
                values[e] =
                    product.at(i, j + e) + (p.bias != nullptr ? p.bias[group * conv.channels + channel + e] : 0.0f);
            put<RUN>(p.image + pixel * conv.image_pitch + group * conv.channels + channel, values, p.accumulate);
        }
    }
}

struct ConvWgradArgs {
    float* dw;           // [K,kh,kw,C/g], or `splits` of them back to back
    const float* begun;  // [K,kh,kw,C/g] of the first split, as earlier slices left it
    float* left;         // the same of the last split, where it goes on in a later slice; may be `begun` of one split
    const float* maps;
    const float* image;
    ConvProblem problem;
    Divider by_window, by_columns, by_channels, by_kernel_w;  // Ho Wo, Wo, C/g, kw
    int splits, images_each;  // split i sums over images [i images_each, (i+1) images_each) of the whole batch
    // Images at hand: first_image .. first_image + problem.images - 1 of images_whole; they meet `splits` splits from
    // first_split on.
    int first_split, first_image, images_whole;
    int accumulate;
};

// conv_wgrad: M = K/g, N = (r, s, c), k = windows of the split's images.
//
// With a slice of the batch, k are the whole stages of windows that lie in it: the first stage begins where one of the
// whole batch does, and so does what lies behind the last one, but for the end of the split.  A split that has begun
// continues from `begun`, and one that does not end here goes to `left`, so that its sums are those of the whole batch.
template <class T, class Product, int V>
LM_FN void conv_wgrad(const ConvWgradArgs& p) {
    LM_DYN_SHARED(float, shared);
    const ConvProblem& conv = p.problem;
    const int group = blockIdx.z / p.splits, split = p.first_split + blockIdx.z % p.splits;
    const int m0 = blockIdx.x * T::M, n0 = blockIdx.y * T::N;
    const int each = conv.maps_h * conv.maps_w, width = conv.kernel_h * conv.kernel_w * conv.channels;
    const int begin = split * p.images_each, end = min(begin + p.images_each, p.images_whole);  // of the split
    const int last = p.first_image + conv.images;
    const int before = (max(p.first_image - begin, 0) * each + DEPTH - 1) / DEPTH * DEPTH;  // windows summed earlier
    const int behind = last < end ? (last - begin) * each / DEPTH * DEPTH : (end - begin) * each;
    const int start = (begin - p.first_image) * each + before, depth = behind - before;
    if (depth <= 0) return;  // less than a stage

    const int m = m0 + my_column<T::M, V>();
    const auto value = [&](int k, bool& inside) {
        inside = inside && k < depth;
        return (start + k) * conv.maps_pitch + group * conv.outputs + m;
    };
    const int n = n0 + my_column<T::N, V>(), tap = divide(n, p.by_channels), c = n - tap * conv.channels;
    const int r = divide(tap, p.by_kernel_w), s = tap - r * conv.kernel_w;
    const int down = r * conv.dilation_h - conv.pad_h, right = s * conv.dilation_w - conv.pad_w;
    const auto seen = [&](int k, bool& inside) {
        const int window = start + k, image = divide(window, p.by_window), rest = window - image * each;
        const int line = divide(rest, p.by_columns), column = rest - line * conv.maps_w;
        const int h = line * conv.stride_h + down, w = column * conv.stride_w + right;
        inside = inside && k < depth && static_cast<unsigned>(h) < static_cast<unsigned>(conv.height) &&
                 static_cast<unsigned>(w) < static_cast<unsigned>(conv.width);
        return ((image * conv.height + h) * conv.width + w) * conv.image_pitch + group * conv.channels + c;
    };
    Product product;
    constexpr int RUN = V < Product::RUN ? V : Product::RUN;
    const bool ends = last >= end;
    const int groups = gridDim.z / p.splits;
    const long long of_group = static_cast<long long>(conv.outputs) * width;
    float* dw = (ends ? p.dw + (split - p.first_split) * groups * of_group : p.left) + group * of_group;
    if (before > 0) {
        const float* begun = p.begun + group * of_group;
#pragma unroll
        for (int i = 0; i < Product::ROWS; ++i) {
            const int k = m0 + product.m_of(i);
            if (k >= conv.outputs) continue;
#pragma unroll
            for (int j = 0; j < Product::COLUMNS; j += RUN) {
                const int column = n0 + product.n_of(j);
                if (column >= width) continue;
                float values[RUN];
                load<RUN>(values, begun + k * width + column);
#pragma unroll
                for (int e = 0; e < RUN; ++e) product.set(i, j + e, values[e]);
            }
        }
    }
    multiply<T>(
        shared, depth,
        [&](float* a_tile, float* b_tile, int k0) {
            load_columns<T::M, T::THREADS, V>(a_tile, p.maps, m < conv.outputs, k0, value);
            load_columns<T::N, T::THREADS, V>(b_tile, p.image, n < width, k0, seen);
        },
        product);
#pragma unroll
    for (int i = 0; i < Product::ROWS; ++i) {
        const int k = m0 + product.m_of(i);
        if (k >= conv.outputs) continue;
#pragma unroll
        for (int j = 0; j < Product::COLUMNS; j += RUN) {
            const int column = n0 + product.n_of(j);
            if (column >= width) continue;
            float values[RUN];
#pragma unroll
            for (int e = 0; e < RUN; ++e) values[e] = product.at(i, j + e);
            put<RUN>(dw + k * width + column, values, ends && p.accumulate);
        }
    }
}

// ---- instances ------------------------------------------------------------------------------------------------------

#define LM_CONV(tile, T, Product, V)                                               \
    LM_KERNEL(conv_fprop_##tile##_v##V, ConvFpropArgs, p, T::THREADS, T::BLOCKS) { \
        conv_fprop<T, Product<T, true, true>, V>(p);                               \
    }                                                                              \
    LM_KERNEL(conv_dgrad_##tile##_v##V, ConvDgradArgs, p, T::THREADS, T::BLOCKS) { \
        conv_dgrad<T, Product<T, true, false>, V>(p);                              \
    }                                                                              \
    LM_KERNEL(conv_wgrad_##tile##_v##V, ConvWgradArgs, p, T::THREADS, T::BLOCKS) { \
        conv_wgrad<T, Product<T, false, false>, V>(p);                             \
    }

// All four tiles, for operands in runs of 16 bytes (V = 4) and for any operands (V = 1).
#define LM_CONV_TILES(Product)             \
    LM_CONV(128x128, T128x128, Product, 4) \
    LM_CONV(128x64, T128x64, Product, 4)   \
    LM_CONV(64x64, T64x64, Product, 4)     \
    LM_CONV(128x32, T128x32, Product, 4)   \
    LM_CONV(128x128, T128x128, Product, 1) \
    LM_CONV(128x64, T128x64, Product, 1)   \
    LM_CONV(64x64, T64x64, Product, 1)     \
    LM_CONV(128x32, T128x32, Product, 1)

}  // namespace lm
