// depthwise_fprop*, depthwise_dgrad*, depthwise_wgrad*: Convolution and Deconvolution whose groups have one input channel
// each, and some outputs: one, in most nets.  The implicit GEMM (conv.cuh) has a matrix of one column for each of them.
//
// Notation: image [N,H,W,C], maps [N,Ho,Wo,K], filter [K,kh,kw]; output k meets channel c = k / (K/C); p(o,t) is the
// image pixel under tap t of output pixel o, outside the image it reads as zero.
//      depthwise_fprop   maps[o,k] = sum_t image[p,c] filter[k,t] + bias[k], then residual, ReLU and its mask
//      depthwise_dgrad   image[p,c] = sum_ok maps[o,k] filter[k,t] + bias[c], then residual; zero where a ReLU made
//                        image[p,c] so
//      depthwise_wgrad   dw[k,t] = sum_o maps[o,k] image[p,c]
//
//   maps, image in 16 bits (element.cuh) in kernels whose names end in the type's; filter, bias and dw are floats
//   3x3 5x5  stride 1 and 2 have separate kernels: a thread has V channels of a strip of outputs next to each other,
//            whose pixels it loads once, a row of the image at a time; the filters are in shared memory.  All others run
//            as _v4 or _v1: a strip of a row, tap by tap
//   launch   fprop, dgrad: a block has 32 channels of THREADS V / 32 strips, which follow each other in a row, from row
//            to row and from image to image: grid blocks across the channels x blocks of strips, block 256.  wgrad: below
//   traffic  |image| + |maps| elements: bound by memory; what neighbouring strips load again comes from L1 and L2
//   assumes  tensors below 2^31 elements; _v4: K = C, a multiple of 4.  A mask needs K, and
//            bottom_mask needs C, a multiple of 8
//   sums     in fp32 by fmaf whatever the precision of products, tap after tap
//   ties     none
//   source   Caffe base_conv_layer.cpp
#include "direct.cuh"

using namespace lm;

constexpr int ROWS_AT_ONCE = 2;  // that a thread loads before it uses the first

template <class E>
struct DepthwiseArgs {
    E* y;        // maps, or the image
    const E* x;  // the other one
    const float* filter;
    DirectShape of;
    Divider by_across;                 // blocks across the channels
    Divider by_image;                  // strips of an image, which has whole bands
    Divider by_band, by_tall;          // strips of a band, and of one of its columns, down which they follow each other
    Divider by_outputs;                // of a group
    Divider by_stride_h, by_stride_w;  // of depthwise_dgrad for any window, as the next two:
    int every_h, every_w;              // taps from one that reaches a pixel to the next
    int strips;
    DirectEpilogue<E> epilogue;
};

// A thread's strip, `row` and `column` counted in strips, and its first channel of y.  Strips of a block lie side by side
// in both directions, so that few pixels are loaded by two blocks.
struct Place {
    int image, row, column, channel;
    bool exists;
};

template <int V, class E>
LM_FN Place place_of(const DepthwiseArgs<E>& p, int channels) {
    const int block = divide(blockIdx.x, p.by_across), across = blockIdx.x - block * p.by_across.divisor;
    constexpr int STRIPS = THREADS * V / CHANNELS;  // of a block
    const int thread = threadIdx.x, strip = block * STRIPS + thread / LANES<V>;
    const int channel = across * CHANNELS + thread % LANES<V> * V;
    const int image = divide(strip, p.by_image), of_image = strip - image * static_cast<int>(p.by_image.divisor);
    const int band = divide(of_image, p.by_band), of_band = of_image - band * static_cast<int>(p.by_band.divisor);
    const int column = divide(of_band, p.by_tall), tall = p.by_tall.divisor;
    return {image, band * tall + of_band - column * tall, column, channel, strip < p.strips && channel < channels};
}

template <int V, class E>
LM_FN void load_bias(float (&bias)[V], const Place& at, const DirectEpilogue<E>& epilogue) {
    if (epilogue.bias != nullptr && at.exists) load<V>(bias, epilogue.bias + at.channel);
}

// The filters of the block's channels, [TAPS][CHANNELS].
template <int TAPS, class E>
LM_FN void load_filters(float* filters, const DepthwiseArgs<E>& p) {
    const int first = (blockIdx.x - divide(blockIdx.x, p.by_across) * p.by_across.divisor) * CHANNELS;
#pragma unroll
    for (int i = threadIdx.x; i < TAPS * CHANNELS; i += THREADS) {
        const int c = i / TAPS, tap = i - c * TAPS;
        filters[tap * CHANNELS + c] = first + c < p.of.channels ? p.filter[(first + c) * TAPS + tap] : 0.0f;
    }
    block_sync();
}

// ---- fprop -----------------------------------------------------------------------------------------------------------

// K x K taps, stride S, a strip of DOWN x RIGHT outputs; K = C.
template <int V, int K, int S, int DOWN, int RIGHT, class E>
LM_FN void fprop(const DepthwiseArgs<E>& p) {
    constexpr int ROWS = (DOWN - 1) * S + K, COLUMNS = (RIGHT - 1) * S + K;
    LM_SHARED(float, filters, [K * K * CHANNELS]);
    const DirectShape& of = p.of;
    const Place at = place_of<V>(p, of.outputs);
    const int row = at.row * DOWN, column = at.column * RIGHT;
    const int h = row * S - of.pad_h, w = column * S - of.pad_w;
    const E* image = p.x + (((at.image * of.height + h) * of.width + w) * of.channels + at.channel);
    const float* filter = filters + static_cast<int>(threadIdx.x) % LANES<V> * V;
    float bias[V] = {}, sum[DOWN][RIGHT][V] = {};
    load_bias(bias, at, p.epilogue);
    load_filters<K * K>(filters, p);
#pragma unroll ROWS_AT_ONCE
    for (int i = 0; i < ROWS; ++i) {
        float pixels[COLUMNS][V];
        load_pixels(pixels, image + i * of.width * of.channels, of.channels, w, of.width,
                    at.exists && is_within(h + i, of.height));
#pragma unroll
        for (int d = 0; d < DOWN; ++d) {
            const int r = i - d * S;  // the tap of row d of the outputs
            if (!is_within(r, K)) continue;
#pragma unroll
            for (int s = 0; s < K; ++s) {
                float weights[V];
                load<V>(weights, filter + (r * K + s) * CHANNELS);
#pragma unroll
                for (int j = 0; j < RIGHT; ++j)
#pragma unroll
                    for (int v = 0; v < V; ++v) sum[d][j][v] = fmaf(pixels[j * S + s][v], weights[v], sum[d][j][v]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < DOWN; ++i)
        store_pixels(p.y, ((at.image * of.maps_h + row + i) * of.maps_w + column) * of.outputs + at.channel, of.outputs,
                     column, of.maps_w, at.exists && row + i < of.maps_h, bias, sum[i], p.epilogue);
}

constexpr int ANY_RIGHT = 4;  // outputs of a strip for any window

template <int V, class E>
LM_FN void fprop_any(const DepthwiseArgs<E>& p) {
    const DirectShape& of = p.of;
    Place at = place_of<V>(p, of.outputs);
    at.exists = at.exists && at.row < of.maps_h;
    const int column = at.column * ANY_RIGHT, taps = of.kernel_h * of.kernel_w;
    const int h = at.row * of.stride_h - of.pad_h, w = column * of.stride_w - of.pad_w;
    const int channel = V > 1 ? at.channel : static_cast<int>(divide(at.channel, p.by_outputs));
    const float* filter = p.filter + at.channel * taps;
    float bias[V] = {}, sum[ANY_RIGHT][V] = {};
    load_bias(bias, at, p.epilogue);
    for (int r = 0; r < of.kernel_h; ++r) {
        const int line = h + r * of.dilation_h;
        if (!at.exists || !is_within(line, of.height)) continue;
#pragma unroll 2
        for (int s = 0; s < of.kernel_w; ++s) {
            const int first = w + s * of.dilation_w;
            float weights[V];
#pragma unroll
            for (int v = 0; v < V; ++v) weights[v] = filter[v * taps + r * of.kernel_w + s];
            const E* image = p.x + (((at.image * of.height + line) * of.width + first) * of.channels + channel);
            float pixels[ANY_RIGHT][V] = {};
#pragma unroll
            for (int j = 0; j < ANY_RIGHT; ++j)
                if (is_within(first + j * of.stride_w, of.width))
                    load<V>(pixels[j], image + j * of.stride_w * of.channels);
#pragma unroll
            for (int j = 0; j < ANY_RIGHT; ++j)
#pragma unroll
                for (int v = 0; v < V; ++v) sum[j][v] = fmaf(pixels[j][v], weights[v], sum[j][v]);
        }
    }
    store_pixels(p.y, ((at.image * of.maps_h + at.row) * of.maps_w + column) * of.outputs + at.channel, of.outputs,
                 column, of.maps_w, at.exists, bias, sum, p.epilogue);
}

// ---- dgrad -----------------------------------------------------------------------------------------------------------

// K x K taps, stride S, a strip of DOWN x RIGHT cells of S x S pixels; K = C.  Cell q has the pixels S q .. S q + S - 1 of
// the padded image along each axis: pixel S q + a lies under tap a + S j of window q - j.
template <int V, int K, int S, int DOWN, int RIGHT, class E>
LM_FN void dgrad(const DepthwiseArgs<E>& p) {
    constexpr int REACH = (K - 1) / S;  // windows before that of its own that reach a cell
    LM_SHARED(float, filters, [K * K * CHANNELS]);
    const DirectShape& of = p.of;
    const Place at = place_of<V>(p, of.channels);
    const int down = of.pad_h / S + at.row * DOWN, right = of.pad_w / S + at.column * RIGHT;  // the first cell
    const int row = down - REACH, column = right - REACH;                                     // the first window
    const int h = down * S - of.pad_h, w = right * S - of.pad_w;                              // the first pixel
    const E* maps = p.x + (((at.image * of.maps_h + row) * of.maps_w + column) * of.outputs + at.channel);
    const float* filter = filters + static_cast<int>(threadIdx.x) % LANES<V> * V;
    float bias[V] = {}, sum[DOWN * S][RIGHT * S][V] = {};
    load_bias(bias, at, p.epilogue);
    load_filters<K * K>(filters, p);
#pragma unroll ROWS_AT_ONCE
    for (int i = 0; i < DOWN + REACH; ++i) {
        float windows[RIGHT + REACH][V];
        load_pixels(windows, maps + i * of.maps_w * of.outputs, of.outputs, column, of.maps_w,
                    at.exists && is_within(row + i, of.maps_h));
#pragma unroll
        for (int d = 0; d < DOWN * S; ++d) {
            const int r = (d / S + REACH - i) * S + d % S;  // the tap under which row d of the pixels lies
            if (!is_within(r, K)) continue;
#pragma unroll
            for (int s = 0; s < K; ++s) {
                float weights[V];
                load<V>(weights, filter + (r * K + s) * CHANNELS);
#pragma unroll
                for (int j = 0; j < RIGHT; ++j)
#pragma unroll
                    for (int v = 0; v < V; ++v) {
                        float& to = sum[d][j * S + s % S][v];
                        to = fmaf(windows[j + REACH - s / S][v], weights[v], to);
                    }
            }
        }
    }
#pragma unroll
    for (int i = 0; i < DOWN * S; ++i)
        store_pixels(p.y, ((at.image * of.height + h + i) * of.width + w) * of.channels + at.channel, of.channels, w,
                     of.width, at.exists && is_within(h + i, of.height), bias, sum[i], p.epilogue);
}

// One axis of a pixel: tap `tap` of window `window` reaches it, and tap + every of window - step, and so on.
struct Reach {
    int tap, window;  // window is -1 where none does
};

LM_FN Reach first_reach(int padded, int dilation, int every, const Divider& by_stride) {
    const int stride = by_stride.divisor, rest = padded - static_cast<int>(divide(padded, by_stride)) * stride;
    int tap = 0;
    while (tap < every && tap * dilation - static_cast<int>(divide(tap * dilation, by_stride)) * stride != rest) ++tap;
    const int distance = padded - tap * dilation;
    return {tap, tap < every && distance >= 0 ? static_cast<int>(divide(distance, by_stride)) : -1};
}

template <int V, class E>
LM_FN void dgrad_any(const DepthwiseArgs<E>& p) {
    const DirectShape& of = p.of;
    Place at = place_of<V>(p, of.channels);
    at.exists = at.exists && at.row < of.height;
    const int taps = of.kernel_h * of.kernel_w, each = p.by_outputs.divisor;
    const Reach down = first_reach(at.row + of.pad_h, of.dilation_h, p.every_h, p.by_stride_h);
    const Reach right = first_reach(at.column + of.pad_w, of.dilation_w, p.every_w, p.by_stride_w);
    const int step_h = static_cast<int>(divide(p.every_h * of.dilation_h, p.by_stride_h));
    const int step_w = static_cast<int>(divide(p.every_w * of.dilation_w, p.by_stride_w));
    float bias[V] = {}, sum[1][V] = {};
    load_bias(bias, at, p.epilogue);
    int row = at.exists ? down.window : -1;
    for (int r = down.tap; r < of.kernel_h && row >= 0; r += p.every_h, row -= step_h) {
        if (row >= of.maps_h) continue;
        int column = right.window;
#pragma unroll 4
        for (int s = right.tap; s < of.kernel_w && column >= 0; s += p.every_w, column -= step_w) {
            if (column >= of.maps_w) continue;
            const E* maps =
                p.x + (((at.image * of.maps_h + row) * of.maps_w + column) * of.outputs + at.channel * each);
            const float* filter = p.filter + (at.channel * each * taps + r * of.kernel_w + s);
            for (int k = 0; k < (V > 1 ? 1 : each); ++k) {
                float windows[V];
                load<V>(windows, maps + k);
#pragma unroll
                for (int v = 0; v < V; ++v) sum[0][v] = fmaf(windows[v], filter[(k + v) * taps], sum[0][v]);
            }
        }
    }
    store_pixels(p.y, ((at.image * of.height + at.row) * of.width + at.column) * of.channels + at.channel, of.channels,
                 at.column, of.width, at.exists, bias, sum, p.epilogue);
}

// ---- wgrad -----------------------------------------------------------------------------------------------------------
//
// A part is a band of rows of the maps, in one group of images after the other: `warps` warps have all its strips.  Of
// each image the threads add up the strips, a warp its threads, and the part its warps; then it adds the image to those
// before.  So an image is added at once, and with a slice of the batch a group goes on from what the slices before have
// left of it, with the bits of the whole batch.
//   parts [groups][bands][K,kh,kw] float written     maps, image read
//   launch   of depthwise_wgrad*: grid (blocks across the channels, blocks of parts, taps / TAPS), block 128

// Adds up TAPS taps from number `first` on, of which `taps` are there.  add(sum, image, row, column, channel) adds a strip
// of RIGHT outputs to sum.
template <int V, int TAPS, int RIGHT, class E, class Add>
LM_FN void sum_taps(const DirectWgradArgs<E>& p, int first, int taps, Add add) {
    constexpr int OF_PART = CHANNELS * TAPS, STRIPS = WARP / LANES<V>;  // sums of a part; strips of a warp
    LM_SHARED(float, sums, [WARPS * OF_PART]);
    LM_SHARED(float, totals, [WARPS * OF_PART]);  // each of one thread
    const DirectShape& of = p.of;
    const int thread = threadIdx.x, warp = thread / WARP, lane = thread % WARP;
    const int parts = WARPS / p.warps, first_part = blockIdx.y * parts, first_output = blockIdx.x * CHANNELS;
    const int bands = p.by_bands.divisor, strips_w = p.by_strips_w.divisor;
    const int part = first_part + warp / p.warps, output = first_output + lane % LANES<V> * V;
    const int group = divide(part, p.by_bands), row = (part - group * bands) * p.rows_each;
    const int strips = part < p.count && output < of.outputs ? min(p.rows_each, of.maps_h - row) * strips_w : 0;
    const int strip = warp % p.warps * STRIPS + lane / LANES<V>;  // the first of this thread
    const int all_taps = of.kernel_h * of.kernel_w;
    const auto first_of = [&](int g) { return (p.first_group + g) * p.images_each; };

    // Sum number i of the block: where it lies in the filters, and its group and band.
    const auto visit = [&](auto use) {
        for (int i = thread; i < parts * OF_PART; i += WGRAD_THREADS) {
            const int number = i / OF_PART, c = (i - number * OF_PART) / TAPS, tap = i % TAPS;
            const int its = first_part + number, its_group = divide(its, p.by_bands);
            if (its >= p.count || first_output + c >= of.outputs || tap >= taps) continue;
            const int at = ((its - its_group * bands) * of.outputs + first_output + c) * all_taps + first + tap;
            use(i, its_group, at);
        }
    };
    visit([&](int i, int its_group, int at) {
        totals[i] = its_group == 0 && p.open_in != nullptr ? p.open_in[at] : 0.0f;
    });
    for (int n = 0; n < p.images_each; ++n) {
        const int image = first_of(group) + n;
        float sum[TAPS][V] = {};
        if (image >= p.first_image && image < p.end)
            for (int i = strip; i < strips; i += p.warps * STRIPS) {
                const int line = divide(i, p.by_strips_w);
                add(sum, image - p.first_image, row + line, (i - line * strips_w) * RIGHT, output);
            }
#pragma unroll
        for (int t = 0; t < TAPS; ++t)
#pragma unroll
            for (int v = 0; v < V; ++v) {
#pragma unroll
                for (int distance = LANES<V>; distance < WARP; distance *= 2)
                    sum[t][v] += shuffle_xor(sum[t][v], distance);
                if (lane < LANES<V>) sums[warp * OF_PART + (lane * V + v) * TAPS + t] = sum[t][v];
            }
        block_sync();
        visit([&](int i, int its_group, int) {
            const int its_image = first_of(its_group) + n;
            if (its_image < p.first_image || its_image >= p.end) return;
            const float* from = sums + i / OF_PART * p.warps * OF_PART + i % OF_PART;
            float of_image = from[0];
            for (int other = 1; other < p.warps; ++other) of_image += from[other * OF_PART];
            totals[i] += of_image;
        });
        block_sync();
    }
    visit([&](int i, int its_group, int at) {
        if (p.end < min(first_of(its_group) + p.images_each, p.images_whole))
            p.open_out[at] = totals[i];
        else
            put(p.parts + its_group * bands * of.outputs * all_taps + at, totals[i], p.accumulate);
    });
}

// K x K taps, stride S, strips of RIGHT outputs; K = C.
template <int V, int K, int S, int RIGHT, class E>
LM_FN void wgrad(const DirectWgradArgs<E>& p) {
    constexpr int COLUMNS = (RIGHT - 1) * S + K;
    const DirectShape& of = p.of;
    const auto add = [&](float (&sum)[K* K][V], int image, int row, int column, int channel) {
        float outputs[RIGHT][V];
        load_pixels(outputs, p.maps + (((image * of.maps_h + row) * of.maps_w + column) * of.outputs + channel),
                    of.outputs, column, of.maps_w, true);
        const int h = row * S - of.pad_h, w = column * S - of.pad_w;
        const E* pixel = p.image + (((image * of.height + h) * of.width + w) * of.channels + channel);
#pragma unroll
        for (int r = 0; r < K; ++r) {
            float pixels[COLUMNS][V];
            load_pixels(pixels, pixel + r * of.width * of.channels, of.channels, w, of.width,
                        is_within(h + r, of.height));
#pragma unroll
            for (int j = 0; j < RIGHT; ++j) {
                if (column + j >= of.maps_w) continue;
#pragma unroll
                for (int s = 0; s < K; ++s)
#pragma unroll
                    for (int v = 0; v < V; ++v)
                        sum[r * K + s][v] = fmaf(outputs[j][v], pixels[j * S + s][v], sum[r * K + s][v]);
            }
        }
    };
    sum_taps<V, K * K, RIGHT>(p, 0, K * K, add);
}

constexpr int ANY_TAPS = 4;  // of a row, which a block has for any window

template <int V, class E>
LM_FN void wgrad_any(const DirectWgradArgs<E>& p) {
    const DirectShape& of = p.of;
    const int chunks = (of.kernel_w + ANY_TAPS - 1) / ANY_TAPS, r = blockIdx.z / chunks;
    const int first = (blockIdx.z - r * chunks) * ANY_TAPS, taps = min(ANY_TAPS, of.kernel_w - first);
    const auto add = [&](float (&sum)[ANY_TAPS][V], int image, int row, int column, int output) {
        const int channel = V > 1 ? output : static_cast<int>(divide(output, p.by_outputs));
        const int h = row * of.stride_h - of.pad_h + r * of.dilation_h;
        if (!is_within(h, of.height)) return;
        float outputs[ANY_RIGHT][V];
        load_pixels(outputs, p.maps + (((image * of.maps_h + row) * of.maps_w + column) * of.outputs + output),
                    of.outputs, column, of.maps_w, true);
#pragma unroll
        for (int t = 0; t < ANY_TAPS; ++t) {
            const int w = column * of.stride_w - of.pad_w + (first + t) * of.dilation_w;
            const E* pixel = p.image + (((image * of.height + h) * of.width + w) * of.channels + channel);
            float pixels[ANY_RIGHT][V] = {};
#pragma unroll
            for (int j = 0; j < ANY_RIGHT; ++j)
                if (t < taps && is_within(w + j * of.stride_w, of.width))
                    load<V>(pixels[j], pixel + j * of.stride_w * of.channels);
#pragma unroll
            for (int j = 0; j < ANY_RIGHT; ++j) {
                if (column + j >= of.maps_w) continue;
#pragma unroll
                for (int v = 0; v < V; ++v) sum[t][v] = fmaf(outputs[j][v], pixels[j][v], sum[t][v]);
            }
        }
    };
    sum_taps<V, ANY_TAPS, ANY_RIGHT>(p, r * of.kernel_w + first, taps, add);
}

// ---- instances -------------------------------------------------------------------------------------------------------

// Strips and warps as in layermem/backends/cuda/products/depthwise.py.
LM_DIRECT(depthwise_fprop_3x3_s1, DepthwiseArgs, THREADS, 2, fprop<4, 3, 1, 2, 4>)
LM_DIRECT(depthwise_fprop_3x3_s2, DepthwiseArgs, THREADS, 2, fprop<4, 3, 2, 2, 2>)
LM_DIRECT(depthwise_fprop_5x5_s1, DepthwiseArgs, THREADS, 2, fprop<4, 5, 1, 2, 4>)
LM_DIRECT(depthwise_fprop_5x5_s2, DepthwiseArgs, THREADS, 2, fprop<4, 5, 2, 2, 2>)
LM_DIRECT(depthwise_fprop_v4, DepthwiseArgs, THREADS, 2, fprop_any<4>)
LM_DIRECT(depthwise_fprop_v1, DepthwiseArgs, THREADS, 4, fprop_any<1>)
LM_DIRECT(depthwise_dgrad_3x3_s1, DepthwiseArgs, THREADS, 2, dgrad<4, 3, 1, 2, 4>)
LM_DIRECT(depthwise_dgrad_3x3_s2, DepthwiseArgs, THREADS, 2, dgrad<4, 3, 2, 1, 2>)
LM_DIRECT(depthwise_dgrad_5x5_s1, DepthwiseArgs, THREADS, 2, dgrad<4, 5, 1, 2, 4>)
LM_DIRECT(depthwise_dgrad_5x5_s2, DepthwiseArgs, THREADS, 2, dgrad<4, 5, 2, 1, 2>)
LM_DIRECT(depthwise_dgrad_v4, DepthwiseArgs, THREADS, 4, dgrad_any<4>)
LM_DIRECT(depthwise_dgrad_v1, DepthwiseArgs, THREADS, 4, dgrad_any<1>)
LM_DIRECT(depthwise_wgrad_3x3_s1, DirectWgradArgs, WGRAD_THREADS, 3, wgrad<4, 3, 1, 2>)
LM_DIRECT(depthwise_wgrad_3x3_s2, DirectWgradArgs, WGRAD_THREADS, 3, wgrad<4, 3, 2, 2>)
LM_DIRECT(depthwise_wgrad_5x5_s1, DirectWgradArgs, WGRAD_THREADS, 2, wgrad<4, 5, 1, 2>)
LM_DIRECT(depthwise_wgrad_5x5_s2, DirectWgradArgs, WGRAD_THREADS, 2, wgrad<4, 5, 2, 1>)
LM_DIRECT(depthwise_wgrad_v4, DirectWgradArgs, WGRAD_THREADS, 3, wgrad_any<4>)
LM_DIRECT(depthwise_wgrad_v1, DirectWgradArgs, WGRAD_THREADS, 4, wgrad_any<1>)
