// conv_dgrad, phase by phase of the stride.  Notation: conv.cuh.
#pragma once
#include "conv_fprop.cuh"

namespace lm {

template <class E, class Weights = float>
struct ConvDgradArgs {
    E* image;
    const E* maps;
    const Weights* filter;
    const float* bias;  // or null
    // Null, or one bit per element of image: those without it become zero, which is the backward of the ReLU that made
    // image.
    const unsigned char* bottom_mask;
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

// The taps of a phase, by their places in the maps and in the weights.
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

// The weights of one column of a dgrad: element k is the weight of (tap of the phase, output).
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

// A thread's runs of a tile of a blob with the layout of C, in shared memory.  It reads only its own copies, so it
// waits for no other thread, and no bank is read twice.
template <class T, class Product>
struct OwnRuns {
    static constexpr int FLOATS = T::M * T::N, RUNS = Product::COLUMNS / 4;
    static_assert(FLOATS == T::THREADS * Product::ROWS * Product::COLUMNS, "threads have equal shares");

    float* first;

    LM_MEMBER explicit OwnRuns(float* shared) : first(shared + 4 * threadIdx.x) {}

    // The place of columns n_of(j) .. of row i, four of them.
    LM_MEMBER float* place(int i, int j) const { return first + (i * RUNS + j / 4) * 4 * T::THREADS; }

    template <class E>
    LM_MEMBER void copy(int i, int j, const E* from, bool inside) const {
        async_copy<4 * sizeof(E)>(place(i, j), from, inside);
    }

    // Returns N elements from j on.
    template <class E, int N>
    LM_MEMBER void take(float (&values)[N], int i, int j) const {
        load<N>(values, reinterpret_cast<const E*>(place(i, j)) + j % 4);
    }
};

// The additional work of conv_dgrad while and after it stores its tile: none by default (see conv_sums.cuh).
struct NoMore {
    static constexpr bool KEEPS_TILE = false;

    LM_MEMBER void begin(float*, const ConvProblem&, int) const {}
    template <class Runs>
    LM_MEMBER void fetch(const Runs&, int, int, int, bool) const {}
    LM_MEMBER void fetched(int) const {}
    template <class Product>
    LM_MEMBER void end(const Product&, float*, const ConvProblem&, int, int) const {}
};

// store_tile in runs of four for conv_dgrad.  The old values of `c` come through `shared`, which held the ring of
// stages, for the whole tile at once, together with the bits of `bottom_mask`: a wait for memory takes as long as some
// stages.  Data that `then` fetches for a run replaces its old values.  Called by all threads.
template <class T, class Product, class E, class RowOf, class Then>
LM_FN void store_gradient(Product& product, float* shared, E* c, RowOf row_of, int n0, const ConvProblem& conv,
                          const float* bias, bool accumulate, const unsigned char* bottom_mask, const Then& then) {
    constexpr int ROWS = Product::ROWS, COLUMNS = Product::COLUMNS, RUN = 4;
    static_assert(OwnRuns<T, Product>::FLOATS <= Product::STAGES * T::STAGE_FLOATS || Then::KEEPS_TILE, "they fit");
    // Rows whose bits are held: large blocks lack registers, and so do products that widen their operands.
    constexpr int AT_ONCE = T::THREADS > 128 || IS_NARROW<E> ? ROWS / 2 : ROWS;
    const OwnRuns<T, Product> runs(shared);
    const auto is_inside = [&](int row, int j) { return row >= 0 && n0 + product.n_of(j) < conv.channels; };
    // Returns the offset of the run.  An absent row has an aligned address as well, since copies of zeros need one.
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
        if (bottom_mask != nullptr) {
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i)
#pragma unroll
                for (int j = 0; j < COLUMNS; j += RUN)
                    if (is_inside(rows[i], j))
                        bytes[i][j / RUN] = bottom_mask[static_cast<unsigned>(place_of(rows[i], j)) / 8];
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

// Returns the pixels of the rows of a tile, from number `first` on of the phase's `count`: (offset of the window under
// tap 0, its row, its column, pixel or -1).  Called by all threads.
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
// and is written once.  With one tap, the outputs may be a band of whole stages (except the last band): bands that
// continue each other's sums add in the order of all outputs.
template <class T, class Product, int V, class E, class Weights, class Then = NoMore>
LM_FN void conv_dgrad(const ConvDgradArgs<E, Weights>& p, const Then& then = {}) {
    constexpr int RUN = V > 1 ? 4 : 1;
    LM_DYN_SHARED(float, shared);
    LM_SHARED(int4, pixels, [T::M]);  // (offset of the window under tap 0, its row, its column, pixel or -1)
    // Rows and columns are in shared memory, like `taps`, to leave registers to the product.
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
        store_gradient<T>(product, shared, p.image, row_of, column, conv, bias, p.accumulate, p.bottom_mask, then);
        then.end(product, shared, conv, pixels[0].w, column);
    } else {
        const Epilogue<E> epilogue = {bias, p.accumulate ? p.image : nullptr, nullptr, 0, 0.0f};
        store_tile<RUN, T, 2>(product, p.image, row_of, column, conv.channels, epilogue, p.bottom_mask);
    }
}

}  // namespace lm
