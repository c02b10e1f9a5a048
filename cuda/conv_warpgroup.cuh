// The sums over windows of conv.cuh for sm_90a, by warpgroups (warpgroup_gemm.cuh).  Notation and arguments are those of
// conv.cuh; what differs:
//
//   launch   grid (at most the tiles of C, 1, groups, groups x phases or groups x splits), block T::ALL_THREADS, dynamic
//            shared memory T::SHARED_BYTES; a block takes several tiles where there are more than the grid has
//   traffic  each operand once per tile of the other side, through L2
//   weights  of packed operands are tiles (weight_tiles.cuh), whose stages are copied at once
//   assumes  as kernels that end in _v4, channels and outputs alike; no moments; in conv_dgrad of packed operands outputs are
//            a multiple of WeightTile::DEPTH, so that a stage has one tap
//   source   conv.cuh; CUDA C++ Programming Guide, "Asynchronous Barrier" and "Asynchronous Data Copies"
#pragma once
#include "conv.cuh"
#include "warpgroup_gemm.cuh"

namespace lm {

#if LM_WARPGROUPS

// How large a product is: rows, k's, columns, tiles along N, all tiles.
struct Extent {
    int rows, depth, columns, across, tiles;
};

template <class T>
LM_FN Extent extent_of(int rows, int depth, int columns) {
    const int across = (columns + T::N - 1) / T::N;
    return {rows, depth, columns, across, (rows + T::M - 1) / T::M * across};
}

// Calls visit(i) for the rows i of A that this warp's lanes copy: 4 warp + n % 4 + 16 (n / 4), n from 0 on.
template <class T, class Visit>
LM_FN void each_row_of_warp(Visit visit) {
    warp_sync();  // all lanes have read those of the tile before
    for (int n = lane_of_warp(); n < T::M / 4; n += WARP)
        visit(static_cast<int>(threadIdx.x) / WARP * 4 + n % 4 + n / 4 * 16);
    warp_sync();
}

// Applies the epilogue and stores, 32 columns after the other.  row_of(m) is the offset of row m of the tile, or -1.
template <class Ring, int AT_ONCE, int WORD = 0, class Product, class E, class RowOf>
LM_FN void store_words(const Product& product, E* c, RowOf row_of, int n0, int columns, const Epilogue<E>& epilogue,
                       const unsigned char* kept = nullptr) {
    using Word = Tile<WARP, 32, WARP, 32, 1>;
    const ColumnsOf<Product, WORD> word(product);
    const int left = opaque(n0) + 32 * WORD;  // nothing is kept in registers from one word to the next
    store_tile<4, Word, AT_ONCE>(word, c, row_of, left, columns, epilogue, kept);
    if constexpr (WORD + 1 < Ring::COLUMNS / 32)
        store_words<Ring, AT_ONCE, WORD + 1>(product, c, row_of, n0, columns, epilogue, kept);
}

template <class T>
constexpr int ROWS_AT_ONCE = T::PRECISION == Precision::BF16_PACKED ? 1 : 2;  // that an epilogue has registers for

// Weights as tiles lie in memory, one k behind the other through all stages, tiles and groups: number_of(k) is the number of
// the first one of the stage from k on.
template <class Weights, class NumberOf>
LM_FN auto tiles_from(const Weights* tiles, NumberOf number_of) {
    const auto source_of = [=](int k) { return tiles + static_cast<long long>(number_of(k)) * WeightTile::COLUMNS; };
    return WholeStages<decltype(source_of)>(source_of);
}

template <class T, class E, class Weights>
LM_FN void warpgroup_fprop(const ConvFpropArgs<E, E, Weights>& p) {
    using Ring = typename RingOf<T, true, true>::Ring;
    using Product = typename Ring::Product;
    LM_SHARED(int4, windows, [T::M]);
    LM_SHARED(Extent, extent, [1]);  // in shared memory, to leave registers to the product
    const ConvProblem& conv = p.problem;
    if (threadIdx.x == 0)
        extent[0] = extent_of<T>(conv.images * conv.maps_h * conv.maps_w, conv.kernel_h * conv.kernel_w * conv.channels,
                                 conv.outputs);
    const auto produce = [&](Ring& ring, int tile) {
        const int group = blockIdx.z, depth = extent[0].depth, row = tile / extent[0].across;
        each_row_of_warp<T>([&](int i) {
            const int window = row * T::M + i, line = window / conv.maps_w, image = line / conv.maps_h;
            const int h = (line - image * conv.maps_h) * conv.stride_h - conv.pad_h;
            const int w = (window - line * conv.maps_w) * conv.stride_w - conv.pad_w;
            windows[i] = make_int4(((image * conv.height + h) * conv.width + w) * conv.image_pitch,
                                   window < extent[0].rows ? h : OUTSIDE, w, 0);
        });
        const Taps<E> taps = {p.image + group * conv.channels, conv.height, conv.width, conv.image_pitch,
                              p.by_channels};
        const TapSteps steps = {conv.dilation_h, conv.dilation_w, depth, p.by_kernel_w};
        TapRows<T, T::M, T::PRODUCERS, T::VECTOR, E> a(windows, taps, steps);
        const int column = tile - row * extent[0].across;
        if constexpr (T::PRECISION == Precision::BF16_PACKED) {
            const int first =
                (group * extent[0].across + column) * ((depth + WeightTile::DEPTH - 1) / WeightTile::DEPTH);
            auto b = tiles_from(p.filter, [=](int k) { return first * WeightTile::DEPTH + k; });
            ring.fill(a, b, depth);
        } else {
            typename Ring::template RowsOfB<Weights> b(p.filter + static_cast<long long>(group) * conv.outputs * depth,
                                                       column * T::N, conv.outputs, depth);
            ring.fill(a, b, depth);
        }
    };
    const auto consume = [&](Ring& ring, int tile) {
        Product product;
        ring.multiply(product, extent[0].depth);
        const int first_output = blockIdx.z * conv.outputs;
        const auto row_of = [&](int i) {
            const int window = opaque(tile) / extent[0].across * T::M + Ring::row_of_tile(product, i);
            return window < extent[0].rows ? window * conv.maps_pitch + first_output : -1;
        };
        Epilogue<E> epilogue = p.epilogue;
        if (epilogue.bias != nullptr) epilogue.bias += first_output;
        store_words<Ring, ROWS_AT_ONCE<T>>(
            product, p.maps, row_of, tile % extent[0].across * T::N + Ring::first_column(), conv.outputs, epilogue);
    };
    run_warpgroups<T, Ring>(extent[0].tiles, produce, consume);
}

// Where B takes many registers, a copy of A reads its row from the table.
template <class T>
struct DgradRows {
    static constexpr bool ROWS_IN_REGISTERS = T::ROWS_IN_REGISTERS && (T::N <= 64 || T::PRECISION == Precision::BF16);
};

// Adds what is there, where load_tile finds it.
template <class Product, class E, class RowOf>
LM_FN void add_tile(Product& product, const E* c, RowOf row_of, int n0, int columns) {
    constexpr int RUN = 4;
    const int first = opaque(n0 + product.n_of(0));
#pragma unroll
    for (int i = 0; i < Product::ROWS; ++i) {
        const int row = row_of(i);
        if (row < 0) continue;
#pragma unroll
        for (int j = 0; j < Product::COLUMNS; j += RUN) {
            const int column = first + (product.n_of(j) - product.n_of(0));
            if (column >= columns) continue;
            float values[RUN];
            load<RUN>(values, c + row + column);
#pragma unroll
            for (int e = 0; e < RUN; ++e) product.set(i, j + e, values[e] + product.at(i, j + e));
        }
    }
}

// Elements whose bit is not set become zero.  word_of(i, w) has the bits of row i for the warp's columns from 32 w on.
template <class Ring, class Product, class WordOf>
LM_FN void keep_bits(Product& product, WordOf word_of) {
    constexpr int OF_WORD = 32 / Product::LANES;  // columns of a lane
#pragma unroll
    for (int i = 0; i < Product::ROWS; ++i) {
#pragma unroll
        for (int word = 0; word < Ring::COLUMNS / 32; ++word) {
            const unsigned bits = word_of(i, word) >> product.n_of(0) % 32;
#pragma unroll
            for (int j = 0; j < OF_WORD; ++j)
                if ((bits >> (product.n_of(j) - product.n_of(0)) & 1u) == 0) product.set(i, word * OF_WORD + j, 0.0f);
        }
    }
}

// Per phase, as conv_dgrad.  Of blobs in 16 bits without a bias, and with bits `kept` of whole words of 32 channels, which
// are copied beside the product.
template <class T, class E, class Weights>
LM_FN void warpgroup_dgrad(const ConvDgradArgs<E, Weights>& p) {
    using Ring = typename RingOf<T, true, false>::Ring;
    using Product = typename Ring::Product;
    using Column = PhaseWeights<T::VECTOR, Weights>;
    LM_SHARED(int4, windows, [T::M]);  // under tap 0 of the pixels of A's rows
    // Of C's rows: offsets in the image, or -1; each warp has its own, and each part of the columns.
    constexpr int TABLE = T::N / Ring::COLUMNS * T::M, WORDS = IS_NARROW<E> ? Ring::COLUMNS / 32 : 1;
    LM_SHARED(int, pixels, [TABLE]);
    LM_SHARED(unsigned, bits, [TABLE * WORDS]);  // of `kept`, for these rows
    LM_SHARED(PhaseAxis, axes, [2]);
    LM_SHARED(PhaseTaps, taps, [1]);
    LM_SHARED(Extent, extent, [1]);
    const ConvProblem& conv = p.problem;
    const PhaseAxis &down = axes[0], &right = axes[1];
    if (threadIdx.x == 0) {
        set_phase(axes, taps, conv, blockIdx.z % (conv.stride_h * conv.stride_w));
        extent[0] = extent_of<T>(conv.images * down.pixels * right.pixels, taps[0].maps.depth, conv.channels);
    }
    // The warps' own rows in these tables.
    const auto own = [] { return Ring::first_column() / Ring::COLUMNS * T::M; };
    const auto group_of = [&] { return static_cast<int>(blockIdx.z) / (conv.stride_h * conv.stride_w); };
    const auto produce = [&](Ring& ring, int tile) {
        const int group = group_of(), row = tile / extent[0].across;
        each_row_of_warp<T>([&](int i) {
            const int pixel = row * T::M + i, line = pixel / right.pixels, image = line / down.pixels;
            const int h = line - image * down.pixels + down.lead, w = pixel - line * right.pixels + right.lead;
            windows[i] = make_int4(((image * conv.maps_h + h) * conv.maps_w + w) * conv.maps_pitch,
                                   pixel < extent[0].rows ? h : OUTSIDE, w, 0);
        });
        const Taps<E> maps = {p.maps + group * conv.outputs, conv.maps_h, conv.maps_w, conv.maps_pitch, p.by_outputs};
        TapRows<DgradRows<T>, T::M, T::PRODUCERS, T::VECTOR, E> a(windows, maps, taps[0].maps);
        if constexpr (T::PRECISION == Precision::BF16_PACKED) {
            const int column = group * extent[0].across + (tile - row * extent[0].across);
            auto b = tiles_from(p.filter, [&, column](int k) {
                const int number = divide(k, p.by_outputs), output = k - number * conv.outputs;
                const int r = divide(number, taps[0].maps.across), s = number - r * right.taps;
                const int line = column * conv.kernel_h + down.first + r * down.every;
                return (line * conv.kernel_w + right.first + s * right.every) * conv.outputs + output;
            });
            ring.fill(a, b, extent[0].depth);
        } else {
            const int c = opaque(tile) % extent[0].across * T::N + my_column<T::N, T::VECTOR>();
            const Weights* filter = p.filter + (static_cast<long long>(group_of()) * conv.outputs * taps[0].pitch + c);
            typename Ring::template ColumnsOfB<Column> b(
                Column{filter, p.by_outputs, taps[0], c < conv.channels, lane_of_warp(), {}});
            ring.fill(a, b, extent[0].depth);
        }
    };
    const auto consume = [&](Ring& ring, int tile) {
        const int first_channel = group_of() * conv.channels;
        warp_sync();  // all lanes have read those of the tile before
#pragma unroll 1
        for (int i = lane_of_warp(); i < Ring::WARP_ROWS; i += WARP) {
            const int mine = Ring::row_of_warp(i);
            const int pixel = opaque(tile) / extent[0].across * T::M + mine, line = pixel / right.pixels,
                      image = line / down.pixels;
            const int h = (line - image * down.pixels) * conv.stride_h + down.start;
            const int w = (pixel - line * right.pixels) * conv.stride_w + right.start;
            pixels[own() + mine] = pixel < extent[0].rows
                                       ? ((image * conv.height + h) * conv.width + w) * conv.image_pitch + first_channel
                                       : -1;
        }
        warp_sync();
        if constexpr (IS_NARROW<E>) {
            const int n0 = opaque(tile) % extent[0].across * T::N + Ring::first_column();
#pragma unroll 1
            for (int i = lane_of_warp(); p.kept != nullptr && i < Ring::WARP_ROWS * WORDS; i += WARP) {
                const int at = own() + Ring::row_of_warp(i / WORDS), column = n0 + i % WORDS * 32;
                const bool inside = pixels[at] >= 0 && column < conv.channels;
                async_copy<4>(bits + at * WORDS + i % WORDS, p.kept + (inside ? pixels[at] + column : 0) / 8, inside);
            }
            async_commit();
        }
        Product product;
        const auto row_of = [&](int i) { return pixels[own() + Ring::row_of_tile(product, i)]; };
        if constexpr (!IS_NARROW<E>)
            if (p.resume) load_tile<4>(product, p.image, row_of, tile % extent[0].across * T::N, conv.channels);
        ring.multiply(product, extent[0].depth);
        const int n0 = opaque(tile) % extent[0].across * T::N + Ring::first_column();
        if constexpr (IS_NARROW<E>) {
            // Before anything is stored: an epilogue that may do all of it takes more registers than there are.
            if (p.accumulate) add_tile(product, p.image, row_of, n0, conv.channels);
            if (p.kept != nullptr) {
                async_wait<0>();
                warp_sync();
                keep_bits<Ring>(product, [&](int i, int word) {
                    return bits[(own() + Ring::row_of_tile(product, i)) * WORDS + word];
                });
            }
            store_words<Ring, 1>(product, p.image, row_of, n0, conv.channels, Epilogue<E>{});
        } else {
            const Epilogue<E> epilogue = {p.bias != nullptr ? p.bias + first_channel : nullptr,
                                          p.accumulate ? p.image : nullptr, nullptr, 0, 0.0f};
            store_words<Ring, (T::N > 64 ? 1 : 2)>(product, p.image, row_of, n0, conv.channels, epilogue, p.kept);
        }
    };
    run_warpgroups<T, Ring>(extent[0].tiles, produce, consume);
}

// Per split and group, as conv_wgrad.
template <class T>
LM_FN void warpgroup_wgrad(const WgradArgs<float>& p) {
    using Ring = typename RingOf<T, false, false>::Ring;
    using Column = ImageColumn<4, true, float>;
    using Product = typename Ring::Product;
    LM_SHARED(Extent, extent, [1]);
    LM_SHARED(int, windows, [2]);  // the first one, of the images at hand, and how many of the split came before
    const ConvProblem& conv = p.problem;
    const int group = blockIdx.z / p.splits, split = p.first_split + blockIdx.z % p.splits;
    const WgradWindows all(p, split);
    const bool ends = all.ends;
    if (threadIdx.x == 0) {
        extent[0] = extent_of<T>(conv.outputs, all.depth, conv.kernel_h * conv.kernel_w * conv.channels);
        if (all.depth <= 0) extent[0].tiles = 0;  // less than a stage
        windows[0] = all.start;
        windows[1] = all.before;
    }
    const auto produce = [&](Ring& ring, int tile) {
        const int start = windows[0], depth = extent[0].depth, row = tile / extent[0].across;
        const int m = row * T::M + my_column<T::M, 4>();
        const int n = (tile - row * extent[0].across) * T::N + TransposedRows<T, Column>::first_column();
        const int tap = divide(n, p.by_channels), c = n - tap * conv.channels;
        const int r = divide(tap, p.by_kernel_w), s = tap - r * conv.kernel_w;
        const int down = r * conv.dilation_h - conv.pad_h, right = s * conv.dilation_w - conv.pad_w;
        const float* maps = p.maps + (static_cast<long long>(start) * conv.maps_pitch + group * conv.outputs + m);
        const float* image = p.image + (static_cast<long long>(down * conv.width + right) * conv.image_pitch +
                                        group * conv.channels + c);
        Columns<T::M, T::PRODUCERS, 4, MapsColumn<4, float>> a(
            MapsColumn<4, float>{maps, conv.maps_pitch, m < conv.outputs ? depth : 0});
        TransposedRows<T, Column> b(Column(image, conv, p.by_window, p.by_columns, start + lane_of_warp(),
                                           start + depth, n < extent[0].columns ? down : OUTSIDE, right));
        ring.fill(a, b, depth);
    };
    const auto consume = [&](Ring& ring, int tile) {
        const int width = extent[0].columns, row = tile / extent[0].across, n0 = (tile - row * extent[0].across) * T::N;
        const int groups = gridDim.z / p.splits;
        const long long of_group = static_cast<long long>(conv.outputs) * width;
        float* dw = (ends ? p.dw + (split - p.first_split) * groups * of_group : p.left) + group * of_group;
        Product product;
        const auto row_of = [&](int i) {
            const int k = opaque(row) * T::M + Ring::row_of_tile(product, i);
            return k < conv.outputs ? k * extent[0].columns : -1;
        };
        if (windows[1] > 0) load_tile<4>(product, p.begun + group * of_group, row_of, n0, width);
        ring.multiply(product, extent[0].depth);
        const Epilogue<float> epilogue = {nullptr, ends && p.accumulate ? dw : nullptr, nullptr, 0, 0.0f};
        store_words<Ring, (T::N > 64 ? 1 : 2)>(product, dw, row_of, n0, width, epilogue);
    };
    run_warpgroups<T, Ring>(extent[0].tiles, produce, consume);
}

#else

// There are no instructions for it: a launch ends with an illegal address.
LM_FN void refuse() { *static_cast<volatile int*>(nullptr) = 0; }

template <class T, class Args>
LM_FN void warpgroup_fprop(const Args&) {
    refuse();
}
template <class T, class Args>
LM_FN void warpgroup_dgrad(const Args&) {
    refuse();
}
template <class T, class Args>
LM_FN void warpgroup_wgrad(const Args&) {
    refuse();
}

#endif

#define LM_WARPGROUP_CONV(tile, T)                                                                               \
    LM_KERNEL(conv_fprop_##tile##_v4, FpropArgs<float>, p, T::ALL_THREADS, T::BLOCKS) { warpgroup_fprop<T>(p); } \
    LM_KERNEL(conv_dgrad_##tile##_v4, DgradArgs<float>, p, T::ALL_THREADS, T::BLOCKS) { warpgroup_dgrad<T>(p); } \
    LM_KERNEL(conv_wgrad_##tile##_v4, WgradArgs<float>, p, T::ALL_THREADS, T::BLOCKS) { warpgroup_wgrad<T>(p); }

#define LM_WARPGROUP_PACKED(tile, E)                                                                  \
    LM_KERNEL(conv_fprop_##tile##_v8, PackedFpropArgs<E>, p, W##tile::ALL_THREADS, W##tile::BLOCKS) { \
        warpgroup_fprop<W##tile>(p);                                                                  \
    }                                                                                                 \
    LM_KERNEL(conv_dgrad_##tile##_v8, PackedDgradArgs<E>, p, W##tile::ALL_THREADS, W##tile::BLOCKS) { \
        warpgroup_dgrad<W##tile>(p);                                                                  \
    }

}  // namespace lm
