// conv_fprop, conv_dgrad, conv_wgrad: Convolution, Deconvolution and InnerProduct as implicit GEMMs
// (implicit_gemm.cuh).
//
// Notation: image [N,H,W,C], out [N,Ho,Wo,K], weights [K,kh,kw,C/g]; p(o,t) is the image pixel under tap t of output
// pixel o, outside the image it reads as zero.  Channels of both sides are cut into g groups; group i of one meets
// group i of the other.  An InnerProduct is an image of one pixel with a kernel of one tap.
//      conv_fprop   out[o,k] = sum_tc image[p,c] w[k,t,c] + bias[k], then residual, ReLU and its mask
//                   Convolution and InnerProduct fprop, Deconvolution dgrad
//      conv_dgrad   image[p,c] = sum_ok out[o,k] w[k,t,c] + bias[c]        Convolution dgrad, Deconvolution fprop
//                   zero where a ReLU made image[p,c] so
//      conv_wgrad   dw[k,t,c] = sum_o out[o,k] image[p,c]                  all weight gradients
//
//   launch   grid (tiles of C, 1, groups x phases or groups x splits), block T::THREADS, dynamic shared memory
//            Product::STAGES stages of T::STAGE_FLOATS floats; tiles along N come first, so that those which read the
//            same rows of A run together and find them in L2
//   moments  of a channel, for the BatchNorm behind it, are stored by the block whose tile has the unit of rows
//   traffic  each operand once per tile of the other side, through L2; bound by arithmetic from about 50 FLOP/byte on
//   assumes  tensors below 2^31 elements; _v4, _v8: channel runs are multiples of 4 elements, or 8 of 16 bits, and so
//            their addresses of 16 bytes, and images with their padding are below 2^14 pixels a side
//   weights  are in fp32, but for _v8: there they are rounded to bfloat16 before
//   ties     none; every sum runs in the order of k, whatever the tile
//   source   Caffe base_conv_layer.cpp (im2col and gemm), with the gather done on the way into shared memory
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
// Elements whose bit of `kept` is not set become zero, laid out as Epilogue::mask; a null pointer keeps all.
//
// Bias, the residual and the bits of AT_ONCE rows are loaded before the first of them is used: a load takes hundreds of
// cycles; but for bits of single elements, whose loads would take more registers than there are.
template <int RUN, class T, int AT_ONCE, class Product, class E, class RowOf>
LM_FN void store_tile(const Product& product, E* c, RowOf row_of, int n0, int columns, const Epilogue<E>& epilogue,
                      const unsigned char* kept = nullptr) {
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
        unsigned bits_kept[AT_ONCE][COLUMNS / RUN];  // of each run, the first one lowest
        if (RUN > 1 && kept != nullptr) {
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                const int row = row_of(first + i);
#pragma unroll
                for (int j = 0; j < COLUMNS; j += RUN) {
                    const unsigned at = row + n0 + product.n_of(j);
                    if (row >= 0 && n0 + product.n_of(j) < columns) bits_kept[i][j / RUN] = kept[at / 8] >> at % 8;
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
                    if (RUN == 1 && kept != nullptr && row >= 0 && column < columns) {
                        const unsigned at = row + column;
                        bits_kept[i][j / RUN] = kept[at / 8] >> at % 8;
                    }
#pragma unroll
                    for (int e = 0; e < RUN; ++e) {
                        y[e] = product.at(first + i, j + e);
                        if (epilogue.bias != nullptr) y[e] += bias[j + e];
                        if (epilogue.residual != nullptr) y[e] = residual[i][j + e] + y[e];
                        if (epilogue.relu) y[e] = positive(y[e]);
                        if (kept != nullptr && (bits_kept[i][j / RUN] >> e & 1u) == 0) y[e] = 0.0f;
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

// The values of C as a blob of E holds them, with their bias.
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

// Stores C without an epilogue, as store_tile does.
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

// A sum of a column of the tile.
struct ColumnSum {
    int n;
    float value;
};

// The moments of group number q of the warp's rows, of which the first `count` are there: all of them, if WHOLE.  Means go
// to group[n] for column n of the tile, and M2's T::N behind them.  Called by all lanes.
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

// The moments of the tile, of which the first `rows` rows are there, or all if WHOLE, in two steps: those of each group of
// rows, while the tile is in registers, into `shared`, which holds the ring of stages; then those of the unit.  Called by
// all threads.
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

// Those of column n0 of the first unit go to parts[n0], and pitch behind it; those of the next one 2 pitch behind.
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

// The block's tile of C, of `columns` columns.
template <class T>
struct Place {
    int m, n;

    LM_MEMBER explicit Place(int columns) {
        const int across = (columns + T::N - 1) / T::N, row = static_cast<int>(blockIdx.x) / across;
        m = row * T::M;
        n = (static_cast<int>(blockIdx.x) - row * across) * T::N;
    }
};

// Whether all rows of the block's tile are among the first `rows` of C; without the division that Place takes.
template <class T>
LM_FN bool has_whole_tile(int rows, int columns) {
    return static_cast<int>(blockIdx.x) < rows / T::M * ((columns + T::N - 1) / T::N);
}

// The epilogue of conv_fprop, for the tile from column n0 of a group on.  window_of says the window of a row, or -1.
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
    // Rows: large blocks lack registers, and so do small ones of which many are to run at once.
    constexpr int AT_ONCE = T::THREADS > 128 || T::A_FLOATS == 0 ? 1 : 2;
    if (has_runs)
        store_tile<4, T, AT_ONCE>(product, p.maps, row_of, n0, conv.outputs, epilogue);
    else
        store_tile<1, T, AT_ONCE>(product, p.maps, row_of, n0, conv.outputs, epilogue);
}

// The window at (line, column) of an image's maps as a row of A: (offset of its first tap, its row, its column, `number`),
// where number is -1 for a row that is not there.
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
    LM_SHARED(int4, windows, [T::M]);  // read again behind the product, which needs the registers
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

template <class E, class Weights = float>
struct ConvDgradArgs {
    E* image;
    const E* maps;
    const Weights* filter;
    const float* bias;          // or null
    const unsigned char* kept;  // null, or one bit per element of image: those without it become zero, which is the
                                // backward of the ReLU that made image
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
    if (stride == 1) return {0, 0, 1, kernel, pad, dilation, 0, size};  // the same without divisions
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

// The taps of a phase, in the maps and in the weights.
struct PhaseTaps {
    TapSteps maps;
    int pitch;               // of an output in the weights
    int first, right, down;  // offsets there: of the first tap, and from tap to tap
};

LM_FN PhaseTaps phase_taps(const PhaseAxis& down, const PhaseAxis& right, const ConvProblem& conv) {
    const TapSteps maps = {-down.step, -right.step, down.taps * right.taps * conv.outputs,
                           short_divider(right.taps > 0 ? right.taps : 1)};
    const int line = conv.kernel_w * conv.channels;
    return {maps, conv.kernel_h * line, down.first * line + right.first * conv.channels, right.every * conv.channels,
            down.every * line};
}

// The weights of one column of a dgrad: element k is that of (tap of the phase, output).
template <int V, class E>
struct PhaseWeights {
    using Element = E;
    static constexpr bool SPREADS = V > 1, HAS_PARTS = true;
    static constexpr int PARTS = STAGE_DEPTH<V> / WARP;  // rows of a lane

    const E* column;  // of tap 0 and output 0
    Divider outputs;
    const PhaseTaps& taps;  // read once a stage
    bool column_inside;
    int k;               // this lane's first row of the next stage
    int offsets[PARTS];  // of this one, or -1

    LM_MEMBER void advance() {
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            const int tap = divide(k, outputs), output = k - tap * static_cast<int>(outputs.divisor);
            const int r = divide(tap, taps.maps.across), s = tap - r * static_cast<int>(taps.maps.across.divisor);
            const int offset = output * taps.pitch + taps.first + r * taps.down + s * taps.right;
            offsets[part] = k < taps.maps.depth ? offset : -1;
            k += WARP;
        }
    }

    LM_MEMBER const E* at(int k, int part, bool& inside) const {
        const int from = shuffle(offsets[part], PARTS > 1 ? k % WARP : k);
        inside = column_inside && from >= 0;
        return column + max(from, 0);  // aligned, too, where there is nothing to copy
    }
};

// A thread's runs of a tile of a blob that lies as C does, in shared memory.  It reads what it has copied itself: it waits
// for no other thread, and no bank is asked twice.
template <class T, class Product>
struct OwnRuns {
    static constexpr int FLOATS = T::M * T::N, RUNS = Product::COLUMNS / 4;
    static_assert(FLOATS == T::THREADS * Product::ROWS * Product::COLUMNS, "threads have equal shares");

    float* first;

    LM_MEMBER explicit OwnRuns(float* shared) : first(shared + 4 * threadIdx.x) {}

    // That of columns n_of(j) .. of row i, four of them.
    LM_MEMBER float* place(int i, int j) const { return first + (i * RUNS + j / 4) * 4 * T::THREADS; }

    template <class E>
    LM_MEMBER void copy(int i, int j, const E* from, bool inside) const {
        async_copy<4 * sizeof(E)>(place(i, j), from, inside);
    }

    // N elements from j on.
    template <class E, int N>
    LM_MEMBER void take(float (&values)[N], int i, int j) const {
        load<N>(values, reinterpret_cast<const E*>(place(i, j)) + j % 4);
    }
};

// What conv_dgrad does beside storing its tile and after it: by default nothing (else conv_sums.cuh).
struct NoMore {
    static constexpr bool KEEPS_TILE = false;

    LM_MEMBER void begin(float*, const ConvProblem&, int) const {}
    template <class Runs>
    LM_MEMBER void fetch(const Runs&, int, int, int, bool) const {}
    LM_MEMBER void fetched(int) const {}
    template <class Product>
    LM_MEMBER void end(const Product&, float*, const ConvProblem&, int, int) const {}
};

// store_tile of runs of four for conv_dgrad.  What `c` holds already comes through `shared`, which held the ring of stages,
// for the whole tile at once, and the bits `kept` beside it: a wait for memory takes as long as some stages.  What `then`
// fetches of a run takes the place of what was there.  Called by all threads.
template <class T, class Product, class E, class RowOf, class Then>
LM_FN void store_gradient(Product& product, float* shared, E* c, RowOf row_of, int n0, const ConvProblem& conv,
                          const float* bias, bool accumulate, const unsigned char* kept, const Then& then) {
    constexpr int ROWS = Product::ROWS, COLUMNS = Product::COLUMNS, RUN = 4;
    static_assert(OwnRuns<T, Product>::FLOATS <= Product::STAGES * T::STAGE_FLOATS || Then::KEEPS_TILE, "they fit");
    // Rows whose bits are held: large blocks lack registers, and so do products that widen their operands.
    constexpr int AT_ONCE = T::THREADS > 128 || IS_NARROW<E> ? ROWS / 2 : ROWS;
    const OwnRuns<T, Product> runs(shared);
    const auto is_inside = [&](int row, int j) { return row >= 0 && n0 + product.n_of(j) < conv.channels; };
    // Where the run lies.  One of a row that is not there has an aligned address as well, since copies of zeros need one.
    const auto place_of = [&](int row, int j) { return max(row, 0) + n0 + product.n_of(j); };
    if (accumulate || Then::KEEPS_TILE) block_sync();  // no thread reads the last stage any more
    if (accumulate) {
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            const int row = row_of(i);
#pragma unroll
            for (int j = 0; j < COLUMNS; j += RUN) runs.copy(i, j, c + place_of(row, j), is_inside(row, j));
        }
    }
    async_commit();
    float added[COLUMNS] = {};
    if (bias != nullptr) {
#pragma unroll
        for (int j = 0; j < COLUMNS; j += RUN)
            if (n0 + product.n_of(j) < conv.channels) load<RUN>(part<RUN>(added, j), bias + n0 + product.n_of(j));
    }
#pragma unroll
    for (int first = 0; first < ROWS; first += AT_ONCE) {
        int rows[AT_ONCE];
        unsigned bytes[AT_ONCE][COLUMNS / RUN];  // with the bits of each run; zeros, where there is none
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            rows[i] = row_of(first + i);
#pragma unroll
            for (int j = 0; j < COLUMNS; j += RUN) bytes[i][j / RUN] = is_inside(rows[i], j) ? 0xffu : 0;
        }
        if (kept != nullptr) {
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i)
#pragma unroll
                for (int j = 0; j < COLUMNS; j += RUN)
                    if (is_inside(rows[i], j))
                        bytes[i][j / RUN] = kept[static_cast<unsigned>(place_of(rows[i], j)) / 8];
        }
        if (first == 0) {
            async_wait<0>();
            then.begin(shared, conv, n0);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
#pragma unroll
            for (int j = 0; j < COLUMNS; j += RUN) {
                const int at = place_of(rows[i], j);
                const unsigned bits = bytes[i][j / RUN] >> static_cast<unsigned>(at) % 8;
                float y[RUN], before[RUN];
                if (accumulate) runs.template take<E>(before, first + i, j);
#pragma unroll
                for (int e = 0; e < RUN; ++e) {
                    y[e] = product.at(first + i, j + e);
                    if (bias != nullptr) y[e] += added[j + e];
                    if (accumulate) y[e] = before[e] + y[e];
                    if ((bits >> e & 1u) == 0) y[e] = 0.0f;
                }
                if (Then::KEEPS_TILE) {
                    round_as<E>(y);
#pragma unroll
                    for (int e = 0; e < RUN; ++e) product.set(first + i, j + e, y[e]);
                }
                if (is_inside(rows[i], j)) store<RUN>(c + at, y);
                then.fetch(runs, first + i, j, at, is_inside(rows[i], j));
            }
            then.fetched(first + i);
        }
    }
}

// Sets the axes and the taps of phase number `phase`.  Called by one thread.
LM_FN void set_phase(PhaseAxis* axes, PhaseTaps* taps, const ConvProblem& conv, int phase) {
    axes[0] = phase_axis(phase / conv.stride_w, conv.kernel_h, conv.stride_h, conv.pad_h, conv.dilation_h, conv.height);
    axes[1] = phase_axis(phase % conv.stride_w, conv.kernel_w, conv.stride_w, conv.pad_w, conv.dilation_w, conv.width);
    taps[0] = phase_taps(axes[0], axes[1], conv);
}

// The pixels of the rows of a tile, those from number `first` on of the phase's `count`: (offset of the window under tap
// 0, its row, its column, pixel or -1).  Called by all threads.
template <class T>
LM_FN void list_pixels(int4* pixels, const ConvProblem& conv, const PhaseAxis& down, const PhaseAxis& right, int first,
                       int count) {
    for (int i = threadIdx.x; i < T::M; i += T::THREADS) {
        const int pixel = first + i, line = pixel / right.pixels, image = line / down.pixels;
        const int h = line - image * down.pixels, w = pixel - line * right.pixels;
        const int row = h + down.lead, column = w + right.lead;
        const int at =
            (image * conv.height + h * conv.stride_h + down.start) * conv.width + w * conv.stride_w + right.start;
        const bool there = pixel < count;
        pixels[i] = make_int4(((image * conv.maps_h + row) * conv.maps_w + column) * conv.maps_pitch,
                              there ? row : OUTSIDE, column, there ? at : -1);
    }
}

// Adds the sums of the tile with these pixels, of the columns from n0 on.  Called by all threads.
template <class T, int V, bool RECOMPUTES = false, class Product, class E, class Weights>
LM_FN void add_dgrad(Product& product, float* shared, const int4* pixels, const PhaseTaps& taps,
                     const ConvProblem& conv, const E* from, const Weights* weights, Divider by_outputs, int group,
                     int n0) {
    const Taps<E> maps = {from + group * conv.outputs, conv.maps_h, conv.maps_w, conv.maps_pitch, by_outputs};
    const int c = n0 + my_column<T::N, V>();
    const Weights* filter = weights + (static_cast<long long>(group) * conv.outputs * taps.pitch + c);
    TapRows<Product, T::M, T::THREADS, V, E> a(pixels, maps, taps.maps);
    using Column = PhaseWeights<V, Weights>;
    Columns<T::N, T::THREADS, V, Column, RECOMPUTES> b(
        Column{filter, by_outputs, taps, c < conv.channels, lane_of_warp(), {}});
    multiply<T>(shared, taps.maps.depth, a, b, product);
}

// conv_dgrad, per phase: M = N Hp Wp pixels, N = C/g, k = (tap of the phase, output).  Each pixel belongs to one phase
// and is written once.  With one tap, the outputs may be a band of whole stages (but for the last band): bands that
// resume each other's sums add in the order of all outputs.
template <class T, class Product, int V, class E, class Weights, class Then = NoMore>
LM_FN void conv_dgrad(const ConvDgradArgs<E, Weights>& p, const Then& then = {}) {
    constexpr int RUN = V > 1 ? 4 : 1;
    LM_DYN_SHARED(float, shared);
    LM_SHARED(int4, pixels, [T::M]);  // (offset of the window under tap 0, its row, its column, pixel or -1)
    // Rows and columns; in shared memory, as are `taps`, to leave registers to the product.
    LM_SHARED(PhaseAxis, axes, [2]);
    LM_SHARED(PhaseTaps, taps, [1]);
    LM_SHARED(int, column_of_tile, [1]);  // its first, where there are few registers
    constexpr bool STORES_COLUMN = Then::KEEPS_TILE || !Product::KEEPS_PLACES;
    const ConvProblem& conv = p.problem;
    const PhaseAxis &down = axes[0], &right = axes[1];
    const int phases = conv.stride_h * conv.stride_w, group = blockIdx.z / phases;
    if (threadIdx.x == 0) set_phase(axes, taps, conv, blockIdx.z % phases);
    block_sync();
    const Place<T> place(conv.channels);
    const int first = place.m, n0 = place.n, count = conv.images * down.pixels * right.pixels;
    if (first >= count) return;  // phases differ in size
    if (STORES_COLUMN && threadIdx.x == 0) column_of_tile[0] = n0;
    list_pixels<T>(pixels, conv, down, right, first, count);
    block_sync();
    Product product;
    const auto row_of = [&](int i) {
        const int pixel = pixels[product.m_of(i)].w;
        return pixel < 0 ? -1 : pixel * conv.image_pitch + group * conv.channels;
    };
    if (!Then::KEEPS_TILE && p.resume) load_tile<RUN>(product, p.image, row_of, n0, conv.channels);
    constexpr bool HOLDS_FETCHED = Then::KEEPS_TILE && IS_NARROW<E> && V != PACKED && LM_ARCH >= 1000;
    constexpr bool LACKS_REGISTERS = HOLDS_FETCHED || !Product::KEEPS_PLACES;
    add_dgrad<T, V, LACKS_REGISTERS>(product, shared, pixels, taps[0], conv, p.maps, p.filter, p.by_outputs, group, n0);
    const float* bias = !Then::KEEPS_TILE && p.bias != nullptr ? p.bias + group * conv.channels : nullptr;
    const int column = STORES_COLUMN ? column_of_tile[0] : n0;
    if constexpr (RUN > 1) {
        store_gradient<T>(product, shared, p.image, row_of, column, conv, bias, p.accumulate, p.kept, then);
        then.end(product, shared, conv, pixels[0].w, column);
    } else {
        const Epilogue<E> epilogue = {bias, p.accumulate ? p.image : nullptr, nullptr, 0, 0.0f};
        store_tile<RUN, T, 2>(product, p.image, row_of, column, conv.channels, epilogue, p.kept);
    }
}

template <class Image, class Maps>
struct ConvWgradArgs {
    float* dw;           // [K,kh,kw,C/g], or `splits` of them back to back
    const float* begun;  // [K,kh,kw,C/g] of the first split, as earlier slices left it
    float* left;         // the same of the last split, where it goes on in a later slice; may be `begun` of one split
    const Maps* maps;
    const Image* image;
    ConvProblem problem;
    Divider by_window, by_columns, by_channels, by_kernel_w;  // Ho Wo, Wo, C/g, kw
    int splits, images_each;   // split i sums over images [i images_each, (i+1) images_each) of the whole batch;
    int pieces, windows_each;  // or, where there are several pieces, splits [i pieces, (i+1) pieces) over one image,
                               // each over so many windows, which are whole stages
    // Images at hand: first_image .. first_image + problem.images - 1 of images_whole; they meet `splits` splits from
    // first_split on.
    int first_split, first_image, images_whole;
    int accumulate;
};

// The windows of a split at hand: `depth` from `start` on, after `before` that earlier slices have summed.
struct WgradWindows {
    int start, depth, before;
    bool ends;  // whether the split ends here

    template <class Args>
    LM_MEMBER WgradWindows(const Args& p, int split) {
        const int each = p.problem.maps_h * p.problem.maps_w, last = p.first_image + p.problem.images;
        const int part = split / p.pieces, piece = split - part * p.pieces;
        const int begin = part * p.images_each, end = min(begin + p.images_each, p.images_whole);
        ends = last >= end;
        before = (max(p.first_image - begin, 0) * each + DEPTH - 1) / DEPTH * DEPTH;
        const int behind = ends ? (end - begin) * each : (last - begin) * each / DEPTH * DEPTH;
        start = (begin - p.first_image) * each + before, depth = behind - before;
        if (p.pieces > 1) {
            start += piece * p.windows_each;
            depth = min(depth - piece * p.windows_each, p.windows_each);
        }
    }
};

// A column of the maps: element k is that of window k, at `pitch` from the one before.
template <int V, class E>
struct MapsColumn {
    using Element = E;
    static constexpr bool SPREADS = V > 1, HAS_PARTS = false;

    const E* next;    // the first of the next stage
    int pitch, left;  // windows from there on

    LM_MEMBER void advance() {
        next += static_cast<long long>(STAGE_DEPTH<V>) * pitch;
        left -= STAGE_DEPTH<V>;
    }

    LM_MEMBER const E* at(int k, int, bool& inside) const {
        inside = k - STAGE_DEPTH<V> < left;
        return next + static_cast<long long>(k - STAGE_DEPTH<V>) * pitch;
    }
};

// A column of what windows see of the image: element k is the pixel under one tap of window start + k.  PAIRS: a place is
// a pair in one register, of images below 2^14 pixels a side.
template <int V, bool PAIRS, class E>
struct ImageColumn {
    using Element = E;
    static constexpr bool SPREADS = PAIRS && (V > 1 || FETCHES_AHEAD), HAS_PARTS = true;
    static constexpr bool IS_KEPT = PAIRS && V == 1;     // else copies are few, and compute address and tap from parts
    static constexpr int PARTS = STAGE_DEPTH<V> / WARP;  // windows of a lane

    const E* image;  // under the tap of a window in the corner
    const ConvProblem& conv;
    Divider by_window, by_columns;
    int next, end;       // this lane's first window of the next stage, and the one behind the last
    int down, right;     // of the tap; down is OUTSIDE where this column is not there
    Pair tap, behind;    // the same, and what it leaves of the image; where these are kept
    int offsets[PARTS];  // of this lane's windows;
    int h, w;            // h is OUTSIDE where that is not there
    Pair places[PARTS];  // h and w

    LM_MEMBER ImageColumn(const E* image, const ConvProblem& conv, Divider by_window, Divider by_columns, int next,
                          int end, int down, int right)
        : image(image),
          conv(conv),
          by_window(by_window),
          by_columns(by_columns),
          next(next),
          end(end),
          down(down),
          right(right) {
        if constexpr (IS_KEPT) {
            this->image = opaque(image);
            tap = Pair(down, right).kept();
            behind = (Pair(conv.height - 1, conv.width - 1) - tap).kept();
        }
    }

    LM_MEMBER void advance() {
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            const int window = next;
            const int image = divide(window, by_window), rest = window - image * static_cast<int>(by_window.divisor);
            const int line = divide(rest, by_columns);
            h = line * conv.stride_h;
            w = (rest - line * static_cast<int>(by_columns.divisor)) * conv.stride_w;
            offsets[part] = ((image * conv.height + h) * conv.width + w) * conv.image_pitch;
            if (window >= end) h = OUTSIDE;
            places[part] = Pair(h, w);
            next += WARP;
        }
    }

    LM_MEMBER const E* at(int k, int part, bool& inside) const {
        if constexpr (PAIRS) {
            const Pair its = IS_KEPT ? tap : Pair(down, right);
            const Pair left = IS_KEPT ? behind : Pair(conv.height - 1, conv.width - 1) - its;
            const Pair seen(shuffle(places[part].both, PARTS > 1 ? k % WARP : k));
            inside = are_natural(seen + its, left - seen);
        } else {
            const int row = shuffle(h, k) + down, pixel = shuffle(w, k) + right;
            inside = static_cast<unsigned>(row) < static_cast<unsigned>(conv.height) &&
                     static_cast<unsigned>(pixel) < static_cast<unsigned>(conv.width);
        }
        return image + shuffle(offsets[part], PARTS > 1 ? k % WARP : k);
    }
};

// conv_wgrad: M = K/g, N = (r, s, c), k = windows of the split's images.
//
// With a slice of the batch, k are the whole stages of windows that lie in it: the first stage begins where one of the
// whole batch does, and so does what lies behind the last one, but for the end of the split.  A split that has begun
// continues from `begun`, and one that does not end here goes to `left`, so that its sums are those of the whole batch.
//
// MAPS_V elements of the maps are copied at once, and V of the image.
template <class T, class Product, int MAPS_V, int V, class Image, class Maps>
LM_FN void conv_wgrad(const ConvWgradArgs<Image, Maps>& p) {
    constexpr int RUN = V > 1 ? 4 : 1;
    constexpr bool PAIRS = MAPS_V > 1;
    LM_DYN_SHARED(float, shared);
    const ConvProblem& conv = p.problem;
    const int group = blockIdx.z / p.splits, split = p.first_split + blockIdx.z % p.splits;
    const int width = conv.kernel_h * conv.kernel_w * conv.channels;
    const Place<T> place(width);
    const int m0 = place.m, n0 = place.n;
    const WgradWindows windows(p, split);
    const int start = windows.start, depth = windows.depth;
    if (depth <= 0) return;  // less than a stage

    const int m = m0 + my_column<T::M, MAPS_V>();
    const int n = n0 + my_column<T::N, V>(), tap = divide(n, p.by_channels), c = n - tap * conv.channels;
    const int r = divide(tap, p.by_kernel_w), s = tap - r * conv.kernel_w;
    const int down = r * conv.dilation_h - conv.pad_h, right = s * conv.dilation_w - conv.pad_w;
    const Maps* maps = p.maps + (static_cast<long long>(start) * conv.maps_pitch + group * conv.outputs + m);
    const Image* image =
        p.image + (static_cast<long long>(down * conv.width + right) * conv.image_pitch + group * conv.channels + c);
    Columns<T::M, T::THREADS, MAPS_V, MapsColumn<MAPS_V, Maps>> a(
        MapsColumn<MAPS_V, Maps>{maps, conv.maps_pitch, m < conv.outputs ? depth : 0});
    using Column = ImageColumn<V, PAIRS, Image>;
    Columns<T::N, T::THREADS, V, Column> b(Column(image, conv, p.by_window, p.by_columns, start + lane_of_warp(),
                                                  start + depth, n < width ? down : OUTSIDE, right));
    Product product;
    const long long of_group = static_cast<long long>(conv.outputs) * width;
    const auto row_of = [&](int i) {
        const int k = m0 + product.m_of(i);
        return k < conv.outputs ? k * width : -1;
    };
    if (windows.before > 0) load_tile<RUN>(product, p.begun + group * of_group, row_of, n0, width);
    multiply<T>(shared, depth, a, b, product);
    const bool ends = windows.ends;
    const int groups = gridDim.z / p.splits;
    float* dw = (ends ? p.dw + (split - p.first_split) * groups * of_group : p.left) + group * of_group;
    const Epilogue<float> epilogue = {nullptr, ends && p.accumulate ? dw : nullptr, nullptr, 0, 0.0f};
    store_tile<RUN, T, 2>(product, dw, row_of, n0, width, epilogue);
}

// ---- instances ------------------------------------------------------------------------------------------------------

// Blobs of E, with weights in fp32 or in E; DATA: the image is in fp32, as the data of a net are.
template <class E>
using FpropArgs = ConvFpropArgs<E, E, float>;
template <class E>
using DgradArgs = ConvDgradArgs<E, float>;
template <class E>
using WgradArgs = ConvWgradArgs<E, E>;
template <class E>
using DataFpropArgs = ConvFpropArgs<float, E, float>;
template <class E>
using DataWgradArgs = ConvWgradArgs<float, E>;
template <class E>
using PackedFpropArgs = ConvFpropArgs<E, E, E>;
template <class E>
using PackedDgradArgs = ConvDgradArgs<E, E>;

#define LM_CONV_ROWS_OF(Fprop, Dgrad, tile, T, Product, V, E)                 \
    LM_KERNEL(conv_fprop_##tile##_v##V, Fprop<E>, p, T::THREADS, T::BLOCKS) { \
        conv_fprop<T, Product<T, true, true>, V>(p);                          \
    }                                                                         \
    LM_KERNEL(conv_dgrad_##tile##_v##V, Dgrad<E>, p, T::THREADS, T::BLOCKS) { \
        conv_dgrad<T, Product<T, true, false>, V>(p);                         \
    }
#define LM_WGRAD(tile, T, Product, V, E)                                          \
    LM_KERNEL(conv_wgrad_##tile##_v##V, WgradArgs<E>, p, T::THREADS, T::BLOCKS) { \
        conv_wgrad<T, Product<T, false, false>, V, V>(p);                         \
    }
#define LM_CONV_OF(Fprop, Dgrad, tile, T, Product, V, E)  \
    LM_CONV_ROWS_OF(Fprop, Dgrad, tile, T, Product, V, E) \
    LM_WGRAD(tile, T, Product, V, E)

// Weight gradients of few outputs.
#define LM_WGRAD_WIDE(Product, V, E)           \
    LM_WGRAD(128x256, T128x256, Product, V, E) \
    LM_WGRAD(128x192, T128x192, Product, V, E) \
    LM_WGRAD(64x192, T64x192, Product, V, E)

#define LM_CONV(tile, T, Product, V, E) LM_CONV_OF(FpropArgs, DgradArgs, tile, T, Product, V, E)
#define LM_CONV_PACKED(tile, T, Product, E) LM_CONV_OF(PackedFpropArgs, PackedDgradArgs, tile, T, Product, 8, E)

#define LM_CONV_DATA(tile, T, Product, V, E)                                               \
    LM_KERNEL(conv_fprop_data_##tile##_v##V, DataFpropArgs<E>, p, T::THREADS, T::BLOCKS) { \
        conv_fprop<T, Product<T, true, true>, V>(p);                                       \
    }                                                                                      \
    LM_KERNEL(conv_wgrad_data_##tile##_v##V, DataWgradArgs<E>, p, T::THREADS, T::BLOCKS) { \
        conv_wgrad<T, Product<T, false, false>, V, V>(p);                                  \
    }

#define LM_CONV_NARROW(tile, T, Product, V, E) \
    LM_CONV(tile, T, Product, V, E)            \
    LM_CONV_DATA(tile, T, Product, V, E)

// Weight gradients of images of few channels: runs of four of the maps, single elements of the image, in small tiles for
// their few columns.
#define LM_WGRAD_FEW(name, tile, T, Product, Args)                             \
    LM_KERNEL(conv_wgrad_##name##tile##_v41, Args, p, T::THREADS, T::BLOCKS) { \
        conv_wgrad<T, Product<T, false, false>, 4, 1>(p);                      \
    }
#define LM_WGRAD_FEW_TILES(name, Product, Args)      \
    LM_WGRAD_FEW(name, 64x64, T64x64, Product, Args) \
    LM_WGRAD_FEW(name, 64x32, T64x32, Product, Args)

// All four tiles, for operands in runs of four elements (V = 4) and for any operands (V = 1), as are those of data.
#define LM_TILES(CONV4, CONV1, Product, E)  \
    CONV4(128x128, T128x128, Product, 4, E) \
    CONV4(128x64, T128x64, Product, 4, E)   \
    CONV4(64x64, T64x64, Product, 4, E)     \
    CONV4(128x32, T128x32, Product, 4, E)   \
    CONV1(128x128, T128x128, Product, 1, E) \
    CONV1(128x64, T128x64, Product, 1, E)   \
    CONV1(64x64, T64x64, Product, 1, E)     \
    CONV1(128x32, T128x32, Product, 1, E)

#define LM_CONV_TILES(Product)                 \
    LM_TILES(LM_CONV, LM_CONV, Product, float) \
    LM_WGRAD_FEW_TILES(, Product, WgradArgs<float>)
#define LM_CONV_NARROW_TILES(Product, E)          \
    LM_TILES(LM_CONV, LM_CONV_NARROW, Product, E) \
    LM_WGRAD_FEW_TILES(data_, Product, DataWgradArgs<E>)

}  // namespace lm
