// grouped_fprop*, grouped_dgrad*, grouped_wgrad*: Convolution and Deconvolution of 3x3 taps whose groups have `each` inputs
// and as many outputs, a few quads.  The implicit GEMM (conv.cuh) has tiles of 32 columns and more for each of them.
//
// Notation: image [N,H,W,C], maps [N,Ho,Wo,C], filter [C,3,3,each]; output k meets the channels c of its own group;
// p(o,t) is the image pixel under tap t of output pixel o, outside the image it reads as zero.
//      grouped_fprop   maps[o,k] = sum_c,t image[p,c] filter[k,t,c] + bias[k], then residual, ReLU and its mask
//      grouped_dgrad   image[p,c] = sum_k,ot maps[o,k] filter[k,t,c] + bias[c], then residual; zero where a ReLU made
//                      image[p,c] so
//      grouped_wgrad   dw[k,t,c] = sum_o maps[o,k] image[p,c]
//
//   maps, image in 16 bits (element.cuh) in kernels whose names end in the type's; filter, bias and dw are floats
//   _sS      stride S in both directions
//   launch   fprop, dgrad: a block has 32 channels of a tile of strips of `images` images; it copies the pixels that they
//            read to shared memory, and its filters.  A thread has 4 channels of a strip of outputs, or of cells, next to
//            each other.  Grid blocks across the channels x tiles, block 8 threads for each strip of a tile, whole warps;
//            dynamic shared memory for filters and pixels.  wgrad: below
//   traffic  |image| + |maps| elements, and 9 `each` products for each: groups of 4 are bound by memory, others by FFMA.
//            What neighbouring tiles load again comes from L2
//   assumes  tensors below 2^31 elements; each = 4, 8 or 16, no dilation.  A mask, or bottom_mask, needs
//            C a multiple of 8
//   sums     in fp32 by fmaf whatever the precision of products: quads of inputs one after the other, of each the rows of
//            taps; wgrad: below.  No product meets another group, so that no infinity or NaN does
//   ties     none
//   source   Caffe base_conv_layer.cpp; Xie et al., Aggregated Residual Transformations for Deep Neural Networks, 2016
#include "direct.cuh"

using namespace lm;

constexpr int K = 3, TAPS = K * K;
constexpr int QUAD = 4;  // channels of a thread, and of a copy

// Strips of the tile of a block: `rows` x `columns` of each of `images` images; tiles of an image down and right.
template <class E>
struct GroupedArgs {
    E* y;        // maps, or the image
    const E* x;  // the other one
    const float* filter;
    DirectShape of;
    Divider by_across;  // blocks across the channels
    Divider by_down, by_right;
    Divider by_outputs;  // of a group
    Divider by_tile, by_columns;
    Divider by_patch_h, by_patch_w;  // pixels of x that a tile reads of an image
    int rows, columns, images;
    DirectEpilogue<E> epilogue;
};

// The place of a thread's strip: in the tile, and on y, counted in strips; its first channel of y.
struct Strip {
    int of_images, of_rows, of_columns;  // in the tile
    int image, row, column, channel;
    bool exists;
};

// The tile of a block: its first channel, image, row and column of strips.
struct Corner {
    int channel, image, row, column;
};

template <class E>
LM_FN Corner corner_of(const GroupedArgs<E>& p) {
    const int block = divide(blockIdx.x, p.by_across), across = blockIdx.x - block * p.by_across.divisor;
    const int line = divide(block, p.by_right), right = block - line * p.by_right.divisor;
    const int image = divide(line, p.by_down), down = line - image * p.by_down.divisor;
    return {across * CHANNELS, image * p.images, down * p.rows, right * p.columns};
}

template <class E>
LM_FN Strip strip_of(const GroupedArgs<E>& p, const Corner& corner, int channels) {
    const int strip = static_cast<int>(threadIdx.x) / LANES<QUAD>, of_tile = p.by_tile.divisor;
    const int image = divide(strip, p.by_tile), rest = strip - image * of_tile;
    const int row = divide(rest, p.by_columns), column = rest - row * p.columns;
    const int channel = corner.channel + static_cast<int>(threadIdx.x) % LANES<QUAD> * QUAD;
    const bool exists = image < p.images && corner.image + image < p.of.images && channel < channels;
    return {image, row, column, corner.image + image, corner.row + row, corner.column + column, channel, exists};
}

// Starts the copies of the filters of the block's channels of y, [quad of x][tap][QUAD][CHANNELS].
constexpr int FILTERS_OF_QUAD = TAPS * QUAD * CHANNELS;

template <bool TRANSPOSED, class E>
LM_FN void copy_filters(float* filters, const GroupedArgs<E>& p, int first) {
    const int each = p.by_outputs.divisor, lane = static_cast<int>(threadIdx.x) % CHANNELS;
    const int channel = first + lane, group = divide(channel, p.by_outputs) * each;
    const bool exists = channel < p.of.channels;
#pragma unroll 4
    for (int row = static_cast<int>(threadIdx.x) / CHANNELS; row < TAPS * each; row += blockDim.x / CHANNELS) {
        const int quad = row / (TAPS * QUAD), tap = row / QUAD % TAPS, other = quad * QUAD + row % QUAD;
        const int output = TRANSPOSED ? group + other : channel, input = TRANSPOSED ? channel - group : other;
        const float* from = exists ? p.filter + ((output * TAPS + tap) * each + input) : p.filter;
        async_copy<4>(filters + row * CHANNELS + lane, from, exists);
    }
}

// Starts the copies of what the tile reads of x, [images][patch_h][patch_w][CHANNELS], from row h and column w on.
template <class E>
LM_FN void copy_patch(E* patch, const GroupedArgs<E>& p, const Corner& corner, int h, int w, int height, int width) {
    const int patch_h = p.by_patch_h.divisor, patch_w = p.by_patch_w.divisor, pixels = p.images * patch_h * patch_w;
    const int quad = static_cast<int>(threadIdx.x) % LANES<QUAD> * QUAD, channel = corner.channel + quad;
    for (int i = static_cast<int>(threadIdx.x) / LANES<QUAD>; i < pixels; i += blockDim.x / LANES<QUAD>) {
        const int line = divide(i, p.by_patch_w), column = w + i - line * patch_w;
        const int number = divide(line, p.by_patch_h), row = h + line - number * patch_h, image = corner.image + number;
        const bool exists =
            is_within(row, height) && is_within(column, width) && image < p.of.images && channel < p.of.channels;
        const E* from = exists ? p.x + (((image * height + row) * width + column) * p.of.channels + channel) : p.x;
        async_copy<QUAD * sizeof(E)>(patch + i * CHANNELS + quad, from, exists);
    }
    async_commit();
}

// ---- fprop -----------------------------------------------------------------------------------------------------------

// Stride S, a strip of RIGHT outputs of a row.
template <int S, int RIGHT, class E>
LM_FN void fprop(const GroupedArgs<E>& p) {
    constexpr int COLUMNS = (RIGHT - 1) * S + K;
    LM_DYN_SHARED(float, filters);
    const DirectShape& of = p.of;
    const Corner corner = corner_of(p);
    const int each = p.by_outputs.divisor, patch_h = p.by_patch_h.divisor, patch_w = p.by_patch_w.divisor;
    E* patch = reinterpret_cast<E*>(filters + TAPS * each * CHANNELS);
    copy_filters<false>(filters, p, corner.channel);
    copy_patch(patch, p, corner, corner.row * S - of.pad_h, corner.column * RIGHT * S - of.pad_w, of.height, of.width);
    const Strip at = strip_of(p, corner, of.outputs);
    float bias[QUAD] = {}, sum[RIGHT][QUAD] = {};
    if (p.epilogue.bias != nullptr && at.exists) load<QUAD>(bias, p.epilogue.bias + at.channel);
    const int own = at.channel - corner.channel, group = own & ~(each - 1);
    const float* filter = filters + own;
    const E* pixel =
        patch + ((at.of_images * patch_h + at.of_rows * S) * patch_w + at.of_columns * RIGHT * S) * CHANNELS + group;
    async_wait<0>();
    block_sync();
    if (at.of_images < p.images)
#pragma unroll 1
        for (int quad = 0; quad < each; quad += QUAD, filter += FILTERS_OF_QUAD)
#pragma unroll
            for (int r = 0; r < K; ++r) {
                float pixels[COLUMNS][QUAD];
#pragma unroll
                for (int j = 0; j < COLUMNS; ++j) load<QUAD>(pixels[j], pixel + quad + (r * patch_w + j) * CHANNELS);
#pragma unroll
                for (int s = 0; s < K; ++s)
#pragma unroll
                    for (int c = 0; c < QUAD; ++c) {
                        float weights[QUAD];
                        load<QUAD>(weights, filter + ((r * K + s) * QUAD + c) * CHANNELS);
#pragma unroll
                        for (int j = 0; j < RIGHT; ++j)
#pragma unroll
                            for (int v = 0; v < QUAD; ++v)
                                sum[j][v] = fmaf(pixels[j * S + s][c], weights[v], sum[j][v]);
                    }
            }
    store_pixels(p.y, ((at.image * of.maps_h + at.row) * of.maps_w + at.column * RIGHT) * of.outputs + at.channel,
                 of.outputs, at.column * RIGHT, of.maps_w, at.exists && at.row < of.maps_h, bias, sum, p.epilogue);
}

// ---- dgrad -----------------------------------------------------------------------------------------------------------

// Stride S, a strip of RIGHT cells of S x S pixels, side by side; cells as in depthwise.cu: cell q has the pixels S q ..
// S q + S - 1 of the padded image along each axis, and pixel S q + a lies under tap a + S j of window q - j.
template <int S, int RIGHT, class E>
LM_FN void dgrad(const GroupedArgs<E>& p) {
    constexpr int REACH = (K - 1) / S;               // windows before that of its own that reach a cell
    constexpr int AT_ONCE = S == 1 ? REACH + 1 : 1;  // rows of windows, as there are registers
    LM_DYN_SHARED(float, filters);
    const DirectShape& of = p.of;
    const Corner corner = corner_of(p);
    const int each = p.by_outputs.divisor, patch_h = p.by_patch_h.divisor, patch_w = p.by_patch_w.divisor;
    E* patch = reinterpret_cast<E*>(filters + TAPS * each * CHANNELS);
    const int first_row = of.pad_h / S, first_column = of.pad_w / S;  // cells
    copy_filters<true>(filters, p, corner.channel);
    copy_patch(patch, p, corner, first_row + corner.row - REACH, first_column + corner.column * RIGHT - REACH,
               of.maps_h, of.maps_w);
    const Strip at = strip_of(p, corner, of.channels);
    float bias[QUAD] = {}, sum[S][RIGHT * S][QUAD] = {};
    if (p.epilogue.bias != nullptr && at.exists) load<QUAD>(bias, p.epilogue.bias + at.channel);
    const int own = at.channel - corner.channel, group = own & ~(each - 1);
    const float* filter = filters + own;
    const E* window =
        patch + ((at.of_images * patch_h + at.of_rows) * patch_w + at.of_columns * RIGHT) * CHANNELS + group;
    async_wait<0>();
    block_sync();
    if (at.of_images < p.images)
#pragma unroll 1
        for (int quad = 0; quad < each; quad += QUAD, filter += FILTERS_OF_QUAD)
#pragma unroll AT_ONCE
            for (int i = 0; i <= REACH; ++i) {
                float windows[RIGHT + REACH][QUAD];
#pragma unroll
                for (int j = 0; j < RIGHT + REACH; ++j)
                    load<QUAD>(windows[j], window + quad + (i * patch_w + j) * CHANNELS);
#pragma unroll
                for (int d = 0; d < S; ++d) {
                    const int r = (REACH - i) * S + d;  // the tap under which row d of the pixels lies
                    if (r >= K) continue;
#pragma unroll
                    for (int s = 0; s < K; ++s)
#pragma unroll
                        for (int k = 0; k < QUAD; ++k) {
                            float weights[QUAD];
                            load<QUAD>(weights, filter + ((r * K + s) * QUAD + k) * CHANNELS);
#pragma unroll
                            for (int j = 0; j < RIGHT; ++j)
#pragma unroll
                                for (int v = 0; v < QUAD; ++v) {
                                    float& to = sum[d][j * S + s % S][v];
                                    to = fmaf(windows[j + REACH - s / S][k], weights[v], to);
                                }
                        }
                }
            }
    const int h = (first_row + at.row) * S - of.pad_h, w = (first_column + at.column * RIGHT) * S - of.pad_w;
#pragma unroll
    for (int d = 0; d < S; ++d)
        store_pixels(p.y, ((at.image * of.height + h + d) * of.width + w) * of.channels + at.channel, of.channels, w,
                     of.width, at.exists && is_within(h + d, of.height), bias, sum[d], p.epilogue);
}

// ---- wgrad -----------------------------------------------------------------------------------------------------------
//
// A part is a band of rows of the maps, in one group of images after the other, and is summed by one warp for each run of
// channels, whole groups.  It goes down the columns of strips of an image, RIGHT outputs wide, some rows at a time, which
// it copies to shared memory of its own, with the pixels that they meet.  A lane has 4 outputs and 2 inputs of their
// group, all taps: nothing is added across lanes, so a group of images goes on from what earlier slices of the batch have
// left of it, with the bits of the whole batch.
//   launch   of grouped_wgrad*: grid (runs of channels, blocks of parts), block 128; dynamic shared memory for rows of the maps and pixels

constexpr int INPUTS = 2;  // of a lane

// Starts the copies of `rows` x COLUMNS pixels of x, [rows][COLUMNS][run], from pixel (h, w) of image `from` on.
template <int COLUMNS, class E>
LM_FN void copy_rows(E* to, const E* from, int h, int w, int rows, int height, int width, int channels, int first,
                     int log_quads) {
    const int lane = static_cast<int>(threadIdx.x) % WARP, quads = 1 << log_quads;
    const int quad = (lane & (quads - 1)) * QUAD, run = quads * QUAD, channel = first + quad;
    for (int i = lane >> log_quads; i < rows * COLUMNS; i += WARP >> log_quads) {
        const int line = i / COLUMNS, row = h + line, column = w + i - line * COLUMNS;
        const bool exists = is_within(row, height) && is_within(column, width) && channel < channels;
        async_copy<QUAD * sizeof(E)>(to + i * run + quad,
                                     exists ? from + ((row * width + column) * channels + channel) : from, exists);
    }
}

// Adds what a strip of RIGHT outputs of the maps contributes; `line` and `run` elements of shared memory lie between pixels
// below each other, and side by side.
template <int S, int RIGHT, class E>
LM_FN void add_strip(float (&sum)[TAPS][QUAD][INPUTS], const E* map, const E* pixel, int line, int run) {
    constexpr int COLUMNS = (RIGHT - 1) * S + K;
    float outputs[RIGHT][QUAD];
#pragma unroll
    for (int j = 0; j < RIGHT; ++j) load<QUAD>(outputs[j], map + j * run);
#pragma unroll
    for (int r = 0; r < K; ++r) {
        float pixels[COLUMNS][INPUTS];
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) load<INPUTS>(pixels[j], pixel + r * line + j * run);
#pragma unroll
        for (int j = 0; j < RIGHT; ++j)
#pragma unroll
            for (int s = 0; s < K; ++s)
#pragma unroll
                for (int k = 0; k < QUAD; ++k)
#pragma unroll
                    for (int c = 0; c < INPUTS; ++c) {
                        float& to = sum[r * K + s][k][c];
                        to = fmaf(outputs[j][k], pixels[j * S + s][c], to);
                    }
    }
}

template <class E>
struct GroupedWgradArgs {
    DirectWgradArgs<E> wgrad;
    int log_quads;  // of a run of channels
    int rows;       // of the maps that a warp copies at once
};

template <int S, int RIGHT, class E>
LM_FN void wgrad(const GroupedWgradArgs<E>& args) {
    constexpr int COLUMNS = (RIGHT - 1) * S + K;
    LM_DYN_SHARED(unsigned char, shared);
    const DirectWgradArgs<E>& p = args.wgrad;
    const DirectShape& of = p.of;
    const int lane = static_cast<int>(threadIdx.x) % WARP, warp = static_cast<int>(threadIdx.x) / WARP;
    const int part = blockIdx.y * WARPS + warp, each = p.by_outputs.divisor, run = QUAD << args.log_quads;
    if (part >= p.count) return;
    const int at_once = args.rows, most_lines = (at_once - 1) * S + K;
    E* pixels_of = reinterpret_cast<E*>(shared) + warp * (most_lines * COLUMNS + at_once * RIGHT) * run;
    E* maps_of = pixels_of + most_lines * COLUMNS * run;
    const int across = WARP >> args.log_quads, quad = lane * (1 << args.log_quads) / WARP;  // lanes that share outputs
    const int own = (lane & (across - 1)) * INPUTS;
    const int first = static_cast<int>(blockIdx.x) * run, of_run = quad * QUAD, output = first + of_run;
    const int input = (of_run & ~(each - 1)) + own, sums = TAPS * each;  // sums of an output
    const int bands = p.by_bands.divisor, group = divide(part, p.by_bands), band = part - group * bands;
    const int first_row = band * p.rows_each, end_row = min(first_row + p.rows_each, of.maps_h);
    const int at = (band * of.outputs + output) * sums + own;  // of the first sum, among those of a group
    const int first_image = (p.first_group + group) * p.images_each, end_image = first_image + p.images_each;

    float sum[TAPS][QUAD][INPUTS] = {};
    const auto visit = [&](auto use) {
        if (output >= of.outputs) return;
#pragma unroll
        for (int t = 0; t < TAPS; ++t)
#pragma unroll
            for (int k = 0; k < QUAD; ++k) use(sum[t][k], at + k * sums + t * each);
    };
    if (group == 0 && p.open_in != nullptr)
        visit([&](float (&to)[INPUTS], int its) { load<INPUTS>(to, p.open_in + its); });

    for (int number = max(first_image, p.first_image); number < min(end_image, p.end); ++number) {
        const E* image = p.image + (number - p.first_image) * of.height * of.width * of.channels;
        const E* maps = p.maps + (number - p.first_image) * of.maps_h * of.maps_w * of.channels;
#pragma unroll 1
        for (int column = 0; column < of.maps_w; column += RIGHT)
#pragma unroll 1
            for (int from = first_row; from < end_row; from += at_once) {
                const int rows = min(at_once, end_row - from);
                warp_sync();  // all lanes have read the rows before
                copy_rows<COLUMNS>(pixels_of, image, from * S - of.pad_h, column * S - of.pad_w, (rows - 1) * S + K,
                                   of.height, of.width, of.channels, first, args.log_quads);
                copy_rows<RIGHT>(maps_of, maps, from, column, rows, of.maps_h, of.maps_w, of.channels, first,
                                 args.log_quads);
                async_commit();
                async_wait<0>();
                warp_sync();
                const int there = of.maps_w - column;  // of the strip; the same in all lanes
#pragma unroll 1
                for (int row = 0; row < rows; ++row) {
                    const E* map = maps_of + row * RIGHT * run + of_run;
                    const E* pixel = pixels_of + row * S * COLUMNS * run + input;
                    if (there >= RIGHT)
                        add_strip<S, RIGHT>(sum, map, pixel, COLUMNS * run, run);
                    else
#pragma unroll 1
                        for (int j = 0; j < there; ++j)
                            add_strip<S, 1>(sum, map + j * run, pixel + j * S * run, COLUMNS * run, run);
                }
            }
    }
    if (p.end < min(end_image, p.images_whole)) {
        visit([&](float (&from)[INPUTS], int its) { store<INPUTS>(p.open_out + its, from); });
    } else {
        float* parts = p.parts + group * bands * of.outputs * sums;
        visit([&](float (&from)[INPUTS], int its) { put(parts + its, from, p.accumulate); });
    }
}

// ---- instances -------------------------------------------------------------------------------------------------------

// Strips as in layermem/backends/cuda/products/grouped.py.
LM_DIRECT(grouped_fprop_s1, GroupedArgs, THREADS, 2, fprop<1, 7>)
LM_DIRECT(grouped_fprop_s2, GroupedArgs, THREADS, 2, fprop<2, 7>)
LM_DIRECT(grouped_dgrad_s1, GroupedArgs, THREADS, 2, dgrad<1, 7>)
LM_DIRECT(grouped_dgrad_s2, GroupedArgs, THREADS, 2, dgrad<2, 4>)
LM_DIRECT(grouped_wgrad_s1, GroupedWgradArgs, WGRAD_THREADS, 3, wgrad<1, 7>)
LM_DIRECT(grouped_wgrad_s2, GroupedWgradArgs, WGRAD_THREADS, 3, wgrad<2, 4>)
