// conv_fprop, and the epilogues of tiles for all sums over windows.  Notation: conv.cuh.
#pragma once
#include "conv_problem.cuh"
#include "implicit_gemm.cuh"
#include "moments.cuh"

namespace lm {

// Epilogue of conv_fprop: y = relu(sum + bias + residual).  A null pointer leaves its term out.  E: element of y.
template <class E>
struct Epilogue {
    const float* bias;    // [K]
    const E* residual;    // laid out as y; y itself to accumulate, or another blob, which y may overlay
    unsigned char* mask;  // one bit per element of y, set where y > largest_zero (pointwise.cuh); K and K/g are
                          // multiples of 8
    int relu;
    float largest_zero;
};

template <class Image, class Maps, class Weights>
struct ConvFpropArgs {
    Maps* maps;
    const Image* image;
    const Weights* filter;
    ConvProblem problem;
    Divider by_channels, by_kernel_w;
    Epilogue<Maps> epilogue;
    float*
        moments;  // of maps (moments.cuh), [units][2][K], or null; no ReLU or residual then, and tiles of whole units
    Divider by_maps_w, by_maps_h;   // of the kernels of conv_patch.cuh
    int filter_pitch, filter_step;  // from one output to the next, and from one group to the next
};

// Applies the epilogue to C and stores it, with row_of, n0, columns and RUN as for load_tile.  Called by all lanes.
//
// Elements with a cleared bit in `bottom_mask`, which has the layout of Epilogue::mask, become zero; a null pointer keeps
// all.
//
// Bias, the residual and the bits of AT_ONCE rows are loaded before the first of them is used, because a load takes
// hundreds of cycles; bits of single elements are not, because their loads would need too many registers.
template <int RUN, class T, int AT_ONCE, class Product, class E, class RowOf>
LM_FN void store_tile(const Product& product, E* c, RowOf row_of, int n0, int columns, const Epilogue<E>& epilogue,
                      const unsigned char* bottom_mask = nullptr) {
    constexpr int COLUMNS = Product::COLUMNS;
    constexpr int OF_WORD = 32 / Product::LANES;  // columns of a lane among the 32 of a word of mask bits
    float bias[COLUMNS] = {};
    if (epilogue.bias != nullptr) {
#pragma unroll
        for (int j = 0; j < COLUMNS; j += RUN)
            if (n0 + product.n_of(j) < columns) load<RUN>(part<RUN>(bias, j), epilogue.bias + n0 + product.n_of(j));
    }
#pragma unroll
    for (int first = 0; first < Product::ROWS; first += AT_ONCE) {
        float residual[AT_ONCE][COLUMNS];
        unsigned mask_bits[AT_ONCE][COLUMNS / RUN];  // of each run, the first one lowest
        if (RUN > 1 && bottom_mask != nullptr) {
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                const int row = row_of(first + i);
#pragma unroll
                for (int j = 0; j < COLUMNS; j += RUN) {
                    const unsigned at = row + n0 + product.n_of(j);
                    if (row >= 0 && n0 + product.n_of(j) < columns)
                        mask_bits[i][j / RUN] = bottom_mask[at / 8] >> at % 8;
                }
            }
        }
        if (epilogue.residual != nullptr) {
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                const int row = row_of(first + i);
#pragma unroll
                for (int j = 0; j < COLUMNS; j += RUN)
                    if (row >= 0 && n0 + product.n_of(j) < columns)
                        load<RUN>(part<RUN>(residual[i], j), epilogue.residual + row + n0 + product.n_of(j));
            }
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            const int row = row_of(first + i);
#pragma unroll
            for (int word = 0; word < T::WARP_N / 32; ++word) {
                unsigned bits = 0;
#pragma unroll
                for (int j = word * OF_WORD; j < (word + 1) * OF_WORD; j += RUN) {
                    const int column = n0 + product.n_of(j);
                    float y[RUN];
                    if (RUN == 1 && bottom_mask != nullptr && row >= 0 && column < columns) {
                        const unsigned at = row + column;
                        mask_bits[i][j / RUN] = bottom_mask[at / 8] >> at % 8;
                    }
#pragma unroll
                    for (int e = 0; e < RUN; ++e) {
                        y[e] = product.at(first + i, j + e);
                        if (epilogue.bias != nullptr) y[e] += bias[j + e];
                        if (epilogue.residual != nullptr) y[e] = residual[i][j + e] + y[e];
                        if (epilogue.relu) y[e] = positive(y[e]);
                        if (bottom_mask != nullptr && (mask_bits[i][j / RUN] >> e & 1u) == 0) y[e] = 0.0f;
                        if (y[e] > epilogue.largest_zero) bits |= 1u << (product.n_of(j) % 32 + e);
                    }
                    if (row >= 0 && column < columns) store<RUN>(c + row + column, y);
                }
                if (epilogue.mask == nullptr) continue;
#pragma unroll
                for (int distance = 1; distance < Product::LANES; distance *= 2) bits |= shuffle_xor(bits, distance);
                const int byte = lane_of_warp() % Product::LANES, column = n0 + warp_n<T>() + 32 * word + 8 * byte;
                if (byte < 4 && row >= 0 && column < columns)
                    epilogue.mask[(row + column) / 8] = static_cast<unsigned char>(bits >> 8 * byte);
            }
        }
    }
}

// Returns the values of C, with their bias, as a blob of E stores them.
template <class E, class Product>
LM_FN void make_stored(Product& product, const float* bias, int n0, int columns) {
    constexpr int PAIR = 2;
    if (bias != nullptr) {
#pragma unroll
        for (int j = 0; j < Product::COLUMNS; ++j) {
            if (n0 + product.n_of(j) >= columns) continue;
            const float added = bias[n0 + product.n_of(j)];
#pragma unroll
            for (int i = 0; i < Product::ROWS; ++i) product.set(i, j, product.at(i, j) + added);
        }
    }
    if constexpr (IS_NARROW<E>) {
#pragma unroll
        for (int i = 0; i < Product::ROWS; ++i) {
#pragma unroll
            for (int j = 0; j < Product::COLUMNS; j += PAIR) {
                float both[PAIR] = {product.at(i, j), product.at(i, j + 1)};
                round_as<E>(both);
                product.set(i, j, both[0]);
                product.set(i, j + 1, both[1]);
            }
        }
    }
}

// Stores C without an epilogue, like store_tile.
template <int RUN, class Product, class E, class RowOf>
LM_FN void store_as_is(const Product& product, E* c, RowOf row_of, int n0, int columns) {
#pragma unroll
    for (int i = 0; i < Product::ROWS; ++i) {
        const int row = row_of(i);
#pragma unroll
        for (int j = 0; j < Product::COLUMNS; j += RUN) {
            const int column = n0 + product.n_of(j);
            float values[RUN];
#pragma unroll
            for (int e = 0; e < RUN; ++e) values[e] = product.at(i, j + e);
            if (row >= 0 && column < columns) store<RUN>(c + row + column, values);
        }
    }
}

// A sum over a column of the tile.
struct ColumnSum {
    int n;
    float value;
};

// Computes the moments of group number q of the warp's rows, of which the first `count` exist: all of them, if WHOLE.
// Means go to group[n] for column n of the tile, and M2's T::N after them.  Called by all lanes.
template <class T, bool WHOLE, class Product>
LM_FN void store_group(const Product& product, float* group, int q, int count) {
    constexpr int EACH = Product::LANES;  // rows of a group that a lane has
    constexpr int RUN = WARP / EACH;      // columns whose sums lanes share: one each
    const int first = warp_m<T>() + q * GROUP_ROWS;
    const auto sum_columns = [&](int j, auto term) {
        float sums[RUN];
#pragma unroll
        for (int e = 0; e < RUN; ++e) {
            float terms[EACH];
#pragma unroll
            for (int i = 0; i < EACH; ++i) {
                terms[i] = term(product.at(q * EACH + i, j + e), e);
                if (!WHOLE && product.m_of(q * EACH + i) - first >= count) terms[i] = 0.0f;
            }
            sums[e] = sum_apart(terms);
        }
        const int its = share_lanes<EACH>(sums);
        return ColumnSum{product.n_of(j + its), sums[0]};
    };
#pragma unroll
    for (int j = 0; j < Product::COLUMNS; j += RUN) {
        const ColumnSum sum = sum_columns(j, [](float value, int) { return value; });
        group[sum.n] = WHOLE ? sum.value * (1.0f / GROUP_ROWS) : sum.value / static_cast<float>(count);
    }
    warp_sync();
#pragma unroll
    for (int j = 0; j < Product::COLUMNS; j += RUN) {
        float means[RUN];
#pragma unroll
        for (int e = 0; e < RUN; e += 4) load<4>(four(means, e), group + product.n_of(j + e));
        const ColumnSum sum = sum_columns(j, [&](float value, int e) {
            const float distance = value - means[e];
            return distance * distance;
        });
        group[T::N + sum.n] = sum.value;
    }
}

// Computes the moments of the tile, of which the first `rows` rows exist, or all if WHOLE, in two steps: first of each
// group of rows, while the tile is in registers, into `shared`, which held the ring of stages; then of the unit.
// Called by all threads.
template <class T, bool WHOLE, class Product>
LM_FN void group_moments(const Product& product, float* shared, int rows) {
    static_assert(T::M % UNIT_ROWS == 0 && T::WARP_M % GROUP_ROWS == 0, "a tile has whole units, a warp whole groups");
#pragma unroll
    for (int q = 0; q < T::WARP_M / GROUP_ROWS; ++q) {
        const int first = warp_m<T>() + q * GROUP_ROWS;
        float* group = shared + 2 * (first / GROUP_ROWS) * T::N;
        store_group<T, WHOLE>(product, group, q, rows_within<GROUP_ROWS>(first, rows));
    }
}

// Stores the moments of column n0 of the first unit at parts[n0] and parts[n0 + pitch]; of the next one 2 pitch later.
template <class T>
LM_FN void store_moments(const float* shared, float* parts, int pitch, int rows, int n0, int columns) {
    block_sync();
    static_assert(T::M / UNIT_ROWS * T::N <= T::THREADS, "a thread has a column of a unit");
    const int n = static_cast<int>(threadIdx.x) % T::N, unit = static_cast<int>(threadIdx.x) / T::N;
    const int first = unit * UNIT_ROWS;
    if (first < min(rows, T::M) && n0 + n < columns) {
        const Moments all = merge_groups([&](int g) {
            const float* group = shared + 2 * (first / GROUP_ROWS + g) * T::N + n;
            const int count = rows_within<GROUP_ROWS>(first + g * GROUP_ROWS, rows);
            return Moments{static_cast<float>(count), group[0], group[T::N]};
        });
        parts += 2 * unit * pitch;
        parts[n0 + n] = all.mean;
        parts[pitch + n0 + n] = all.m2;
    }
}

// The block's tile of C, which has `columns` columns.
template <class T>
struct Place {
    int m, n;

    LM_MEMBER explicit Place(int columns) {
        const int across = (columns + T::N - 1) / T::N, row = static_cast<int>(blockIdx.x) / across;
        m = row * T::M;
        n = (static_cast<int>(blockIdx.x) - row * across) * T::N;
    }
};

// Returns whether all rows of the block's tile are among the first `rows` of C, without the division of Place.
template <class T>
LM_FN bool has_whole_tile(int rows, int columns) {
    return static_cast<int>(blockIdx.x) < rows / T::M * ((columns + T::N - 1) / T::N);
}

// Applies conv_fprop's epilogue to the tile from column n0 of a group on.  window_of returns the window of a row, or
// -1.
template <class T, class Product, class Image, class Maps, class Weights, class WindowOf>
LM_FN void store_windows(Product& product, float* shared, const ConvFpropArgs<Image, Maps, Weights>& p, int group,
                         int n0, WindowOf window_of) {
    constexpr bool HAS_MOMENTS = T::M % UNIT_ROWS == 0;
    const ConvProblem& conv = p.problem;
    const int count = conv.images * conv.maps_h * conv.maps_w, first_output = group * conv.outputs;
    const auto row_of = [&](int i) {
        const int window = window_of(product.m_of(i));
        return window >= 0 ? window * conv.maps_pitch + first_output : -1;
    };
    Epilogue<Maps> epilogue = p.epilogue;
    if (epilogue.bias != nullptr) epilogue.bias += first_output;
    const bool has_runs = conv.outputs % 4 == 0 && conv.maps_pitch % 4 == 0;
    if constexpr (HAS_MOMENTS) {
        if (p.moments != nullptr) {
            const int rows = count - window_of(0);
            make_stored<Maps>(product, epilogue.bias, n0, conv.outputs);
            block_sync();  // no thread reads the last stage any more
            if (has_whole_tile<T>(count, conv.outputs))
                group_moments<T, true>(product, shared, rows);
            else
                group_moments<T, false>(product, shared, rows);
            if (has_runs)
                store_as_is<4>(product, p.maps, row_of, n0, conv.outputs);
            else
                store_as_is<1>(product, p.maps, row_of, n0, conv.outputs);
            float* moments = p.moments + 2 * (window_of(0) / UNIT_ROWS) * conv.maps_pitch + first_output;
            store_moments<T>(shared, moments, conv.maps_pitch, rows, n0, conv.outputs);  // no register holds the tile
            return;
        }
    }
    // Rows at a time: large blocks lack registers, and so do small ones if many of them run at once.
    constexpr int AT_ONCE = T::THREADS > 128 || T::A_FLOATS == 0 ? 1 : 2;
    if (has_runs)
        store_tile<4, T, AT_ONCE>(product, p.maps, row_of, n0, conv.outputs, epilogue);
    else
        store_tile<1, T, AT_ONCE>(product, p.maps, row_of, n0, conv.outputs, epilogue);
}

// Returns the window at (line, column) of an image's maps as a row of A: (offset of its first tap, its row, its column,
// `number`), where number is -1 for an absent row.
LM_FN int4 window_at(const ConvProblem& conv, int image, int line, int column, int number) {
    const int h = line * conv.stride_h - conv.pad_h, w = column * conv.stride_w - conv.pad_w;
    const int offset = ((image * conv.height + h) * conv.width + w) * conv.image_pitch;
    return make_int4(offset, number >= 0 ? h : OUTSIDE, w, number);
}

// Adds the sums of the tile with these windows, of the columns from n0 on.  Called by all threads.
template <class T, int V, class Product, class Image, class Maps, class Weights>
LM_FN void add_fprop(Product& product, float* shared, const int4* windows, const ConvFpropArgs<Image, Maps, Weights>& p,
                     int group, int n0) {
    const ConvProblem& conv = p.problem;
    const int depth = conv.kernel_h * conv.kernel_w * conv.channels;
    const Taps<Image> taps = {p.image + group * conv.channels, conv.height, conv.width, conv.image_pitch,
                              p.by_channels};
    const TapSteps steps = {conv.dilation_h, conv.dilation_w, depth, p.by_kernel_w};
    const Weights* filter = p.filter + static_cast<long long>(group) * p.filter_step;
    TapRows<Product, T::M, T::THREADS, V, Image> a(windows, taps, steps);
    MatrixRows<Product, T::N, T::THREADS, V, Weights> b(filter, n0, conv.outputs, depth, p.filter_pitch);
    multiply<T>(shared, depth, a, b, product);
}

// conv_fprop: M = N Ho Wo windows, N = K/g, k = (r, s, c).
template <class T, class Product, int V, class Image, class Maps, class Weights>
LM_FN void conv_fprop(const ConvFpropArgs<Image, Maps, Weights>& p) {
    LM_DYN_SHARED(float, shared);
    LM_SHARED(int4, windows, [T::M]);  // read again after the product, which needs the registers
    const ConvProblem& conv = p.problem;
    const Place<T> place(conv.outputs);
    const int group = blockIdx.z, first = place.m, n0 = place.n;
    const int count = conv.images * conv.maps_h * conv.maps_w;
    for (int i = threadIdx.x; i < T::M; i += T::THREADS) {
        const int window = first + i, line = window / conv.maps_w, image = line / conv.maps_h;
        windows[i] = window_at(conv, image, line - image * conv.maps_h, window - line * conv.maps_w,
                               window < count ? window : -1);
    }
    block_sync();
    Product product;
    add_fprop<T, V>(product, shared, windows, p, group, n0);
    const int column = T::THREADS > 128 ? Place<T>(opaque(conv.outputs)).n : n0;  // not kept, where registers lack
    store_windows<T>(product, shared, p, group, column, [&](int row) { return windows[row].w; });
}

}  // namespace lm
