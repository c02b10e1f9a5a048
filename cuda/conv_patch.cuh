// conv_fprop_*patch_*: conv_fprop of images of few channels, with each tile's part of the image in shared memory.
//   out [N,Ho,Wo,K] written     image [N,H,W,C], weights [K,kh,kw,C] float read
//
// The taps of a row of a window are neighbours in memory, and windows of a tile overlap.  So a block copies the image
// rows of its windows once, 16 bytes at a time, and products read A there: element k of a window lies at the window's
// place plus that of k, from a table in shared memory.  B comes through the ring of stages.
//
//   patch    one segment per image of the tile: rows of the image with `gap` zeros before each row and after the last
//            one, which are the padding left and right; rows of the padding above and below are zeros.  Each row has the
//            same alignment to 16 bytes as in memory; gap is a multiple of 4 floats, so all rows have the same one
//   launch   as conv_fprop; dynamic shared memory: Product::STAGES stages of B, the table, the patch
//            (layermem/backends/cuda/products/conv_patch.py has the sizes)
//   traffic  the patch and B once per tile, through L2
//   banks    a read of A has four elements of eight windows; at a distance of 12 or 3 floats they use different banks, at
//            6 two share each bank
//   assumes  image and weights in fp32
//   order    as in conv_fprop: the same steps along k, and so the same bits
//   source   Caffe base_conv_layer.cpp, as conv_fprop
#pragma once
#include "conv.cuh"

namespace lm {

// A tile whose stages have no A.
template <int N, int BLOCKS>
struct PatchTile : Tile<128, N, 32, N, BLOCKS> {
    static constexpr int A_FLOATS = 0, STAGE_FLOATS = N * DEPTH;
};

using P128x96 = PatchTile<96, 2>;
using P128x64 = PatchTile<64, 3>;

// A block's part of the image.  Places are floats from the start of shared memory.
struct Patch {
    const ConvProblem& conv;
    const float* image;
    int at;                         // where it begins
    int gap, row, pitch, reach;     // floats of a gap, of a row, of both; rows that a line of windows sees
    int first_image, first_line;    // of the tile's first window,
    int last_image, last_line;      // and of its last one
    int first_rows, rows_of_image;  // of the first segment, and of those in the middle

    template <class Args>
    LM_MEMBER Patch(const Args& p, int at, int first, int last) : conv(p.problem), image(p.image), at(at) {
        const int seen = (conv.maps_w - 1) * conv.stride_w + (conv.kernel_w - 1) * conv.dilation_w + 1;
        const int right = seen - conv.pad_w - conv.width;
        gap = (max(max(conv.pad_w, right) * conv.image_pitch, 1) + 3) / 4 * 4;
        row = conv.width * conv.image_pitch;
        pitch = gap + row;
        reach = (conv.kernel_h - 1) * conv.dilation_h + 1;
        const int line = divide(first, p.by_maps_w), end = divide(last, p.by_maps_w);
        first_image = divide(line, p.by_maps_h), first_line = line - first_image * conv.maps_h;
        last_image = divide(end, p.by_maps_h), last_line = end - last_image * conv.maps_h;
        first_rows = rows(first_line, last_image > first_image ? conv.maps_h - 1 : last_line);
        rows_of_image = rows(0, conv.maps_h - 1);
    }

    // Returns the rows that lines `from` to `to` of windows read.
    LM_MEMBER int rows(int from, int to) const { return (to - from) * conv.stride_h + reach; }

    // Returns the first line of windows of the image's part.
    LM_MEMBER int line_of(int of_image) const { return of_image == first_image ? first_line : 0; }

    // Returns the floats of a segment: one additional gap, and up to three floats to align rows to 16 bytes.
    LM_MEMBER int size(int rows) const { return gap + (rows * pitch + 3 + 3) / 4 * 4; }

    // Returns the first row of the image in the segment.
    LM_MEMBER int row_of(int of_image) const { return line_of(of_image) * conv.stride_h - conv.pad_h; }

    // Returns the place of that row.
    LM_MEMBER int place_of(int of_image) const {
        const int number = of_image - first_image;
        const int segment = number == 0 ? 0 : size(first_rows) + (number - 1) * size(rows_of_image);
        const int before = (of_image * conv.height + row_of(of_image)) * row;
        const int among = static_cast<int>(reinterpret_cast<unsigned long long>(image) / sizeof(float)) + before & 3;
        return at + segment + gap + among;
    }

    // Returns a place that holds zero.
    LM_MEMBER int zero() const { return place_of(first_image) - 1; }

    // Starts the copies of all rows; warps take rows in turn.
    template <int WARPS>
    LM_MEMBER void copy(float* shared) const {
        for (int of_image = first_image; of_image <= last_image; ++of_image) {
            const int last = of_image == last_image ? last_line : conv.maps_h - 1;
            const int count = rows(line_of(of_image), last), place = place_of(of_image);
            for (int i = static_cast<int>(threadIdx.x) / WARP; i < count; i += WARPS) {
                const int h = row_of(of_image) + i;
                const bool inside = static_cast<unsigned>(h) < static_cast<unsigned>(conv.height);
                // A row of the padding needs an aligned source too, from which zeros are copied.
                const long long from = static_cast<long long>(of_image * conv.height + h) * row;
                copy_row(shared + place + i * pitch, image + from, -(place + i * pitch) & 3, inside,
                         i + 1 == count ? gap : 0);
            }
        }
    }

    // Starts the copies of a row, of the gap before it and of `behind` zeros; `head` floats precede 16-byte accesses.
    LM_MEMBER void copy_row(float* to, const float* from, int head, bool inside, int behind) const {
        head = min(head, row);
        const int chunks = (row - head) / 4, tail = head + 4 * chunks;
        for (int i = lane_of_warp(); i < chunks; i += WARP)
            async_copy<16>(to + head + 4 * i, from + head + 4 * i, inside);
        for (int i = lane_of_warp() - gap; i < head + row - tail + behind; i += WARP) {
            const int j = i < head ? i : i - head + tail;
            async_copy<4>(to + j, from + j, inside && j >= 0 && j < row);
        }
    }
};

// A of multiply(), which needs no copies.
struct NoCopies {
    static constexpr int COPIES = 0;
    static constexpr bool SPREADS = true, WIDENS = false;
    LM_MEMBER void advance() {}
    LM_MEMBER void copy(float*, int) {}
    LM_MEMBER void fetch(int) {}
    LM_MEMBER void place(float*, int) {}
};

// B of multiply(): it has few copies, so they may be unrolled between products.  On sm_100 there are not enough
// registers for all of their addresses and for operands in two parts.
template <class Product>
constexpr bool LACKS_ADDRESSES = LM_ARCH >= 1000 && !Product::ROWS_IN_REGISTERS;

template <class T, class Product>
struct SpreadRows : MatrixRows<Product, T::N, T::THREADS, 1, float, LACKS_ADDRESSES<Product>> {
    static constexpr bool SPREADS = true;
    using MatrixRows<Product, T::N, T::THREADS, 1, float, LACKS_ADDRESSES<Product>>::MatrixRows;
};

template <class T, class Product, class Maps>
LM_FN void conv_fprop_patch(const ConvFpropArgs<float, Maps, float>& p) {
    constexpr int RING = Product::STAGES * T::STAGE_FLOATS;
    LM_DYN_SHARED(float, shared);
    LM_SHARED(int2, windows, [T::M]);  // (place in the patch in bytes, window or -1); read again behind the product
    const ConvProblem& conv = p.problem;
    const Place<T> place(conv.outputs);
    const int group = blockIdx.z, first = place.m, n0 = place.n;
    const int count = conv.images * conv.maps_h * conv.maps_w, depth = conv.kernel_h * conv.kernel_w * conv.channels;
    const int entries = tap_entries(depth);
    TapPlace* taps = reinterpret_cast<TapPlace*>(shared + RING);
    const Patch patch(p, RING + 2 * entries, first, min(first + T::M, count) - 1);
    patch.template copy<T::THREADS / WARP>(shared);
    for (int k = threadIdx.x; k < entries; k += T::THREADS) {
        const int tap = divide(k, p.by_channels), r = divide(tap, p.by_kernel_w), s = tap - r * conv.kernel_w;
        const int offset =
            r * conv.dilation_h * patch.pitch + s * conv.dilation_w * conv.image_pitch + (k - tap * conv.channels);
        taps[k] = k < depth ? make_int2(1, 4 * offset) : make_int2(0, 4 * patch.zero());
    }
    for (int i = threadIdx.x; i < T::M; i += T::THREADS) {
        const int window = first + i, there = min(window, count - 1);
        const int line = divide(there, p.by_maps_w), image = divide(line, p.by_maps_h);
        const int down = (line - image * conv.maps_h - patch.line_of(image)) * conv.stride_h;
        const int right = (there - line * conv.maps_w) * conv.stride_w - conv.pad_w;
        const int at = patch.place_of(image) + down * patch.pitch + right * conv.image_pitch + group * conv.channels;
        windows[i] = make_int2(4 * at, window < count ? window : -1);
    }
    block_sync();
    const float* filter = p.filter + static_cast<long long>(group) * conv.outputs * depth;
    NoCopies a;
    SpreadRows<T, Product> b(filter, n0, conv.outputs, depth);
    Product product;
    product.patch.begin(shared, taps, [&](int i) { return windows[product.m_of(i)].x; });
    multiply<T>(shared, depth, a, b, product);
    store_windows<T>(product, shared, p, group, n0, [&](int row) { return windows[row].y; });
}

#define LM_CONV_PATCH(name, tile, T, Product, E)                                                  \
    LM_KERNEL(conv_fprop_##name##patch_##tile##_v1, DataFpropArgs<E>, p, T::THREADS, T::BLOCKS) { \
        conv_fprop_patch<T, Product<T>>(p);                                                       \
    }
#define LM_CONV_PATCH_TILES(name, Product, E)        \
    LM_CONV_PATCH(name, 128x96, P128x96, Product, E) \
    LM_CONV_PATCH(name, 128x64, P128x64, Product, E)

}  // namespace lm
