// conv_wgrad, split by split of the windows.  Notation: conv.cuh.
#pragma once
#include "conv_fprop.cuh"

namespace lm {

template <class Image, class Maps>
struct ConvWgradArgs {
    float* dw;             // [K,kh,kw,C/g], or `splits` of them back to back
    const float* open_in;  // [K,kh,kw,C/g]: sums of the first split over earlier slices, which left it open
    float* open_out;       // the same of the last split, where it goes on in a later slice; may be `open_in`
    const Maps* maps;
    const Image* image;
    ConvProblem problem;
    Divider by_window, by_columns, by_channels, by_kernel_w;  // Ho Wo, Wo, C/g, kw
    int splits, images_each;   // split i sums over images [i images_each, (i+1) images_each) of the whole batch;
    int pieces, windows_each;  // or, where there are several pieces, splits [i pieces, (i+1) pieces) over one image,
                               // each over so many windows, which are whole stages
    // This slice has images first_image .. first_image + problem.images - 1 of images_whole, in `splits` splits from
    // first_split on.
    int first_split, first_image, images_whole;
    int accumulate;
    Frames frames;  // of blobs in fp32
};

// The windows of a split in this slice: `depth` from `start` on, after `before` that earlier slices have summed.
struct WgradWindows {
    int start, depth, before;
    bool ends;  // whether the split ends here

    template <class Args>
    LM_MEMBER WgradWindows(const Args& p, int split) {
        const int each = p.problem.maps_h * p.problem.maps_w, slice_end = p.first_image + p.problem.images;
        const int part = split / p.pieces, piece = split - part * p.pieces;
        const int begin = part * p.images_each, end = min(begin + p.images_each, p.images_whole);
        ends = slice_end >= end;
        before = (max(p.first_image - begin, 0) * each + DEPTH - 1) / DEPTH * DEPTH;
        const int behind = ends ? (end - begin) * each : (slice_end - begin) * each / DEPTH * DEPTH;
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

    const E* maps;         // of the first window of the next stage
    int pitch, remaining;  // windows from there on

    LM_MEMBER void advance() {
        maps += static_cast<long long>(STAGE_DEPTH<V>) * pitch;
        remaining -= STAGE_DEPTH<V>;
    }

    LM_MEMBER const E* at(int k, int, bool& inside) const {
        inside = k - STAGE_DEPTH<V> < remaining;
        return maps + static_cast<long long>(k - STAGE_DEPTH<V>) * pitch;
    }
};

// The same of maps that lie frame by frame: element k is that of window start + k.
template <int V, class E>
struct MapsColumnByFrame {
    using Element = E;
    static constexpr bool SPREADS = V > 1, HAS_PARTS = false;
    static_assert(STAGE_DEPTH<V> == WARP, "a lane has a window of each stage");

    const E* maps;  // of the first window in memory
    const ByFrame order;
    const Divider& by_window;
    int pitch, remaining;  // windows from the next stage on
    int next, offset;      // this lane's window of the next stage, and where that of this stage lies

    LM_MEMBER void advance() {
        offset = order.place_of_window(next, by_window) * pitch;
        next += STAGE_DEPTH<V>;
        remaining -= STAGE_DEPTH<V>;
    }

    LM_MEMBER const E* at(int k, int, bool& inside) const {
        inside = k - STAGE_DEPTH<V> < remaining;
        return maps + shuffle(offset, k);
    }
};

// A column of the windows' pixels: element k is the pixel under one tap of window start + k.  PAIRS: a place is a pair
// in one register, for images below 2^14 pixels a side.
template <int V, bool PAIRS, class E, class Order = InOrder>
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
    Pair shift, limit;   // down and right, and the last place whose pixel under the tap is inside; where these are kept
    int offsets[PARTS];  // of this lane's windows;
    int h, w;            // h is OUTSIDE where that is not there
    Pair places[PARTS];  // h and w
    const Order order;

    LM_MEMBER ImageColumn(const E* image, const ConvProblem& conv, Divider by_window, Divider by_columns, int next,
                          int end, int down, int right, const Order& order = {})
        : image(image),
          conv(conv),
          by_window(by_window),
          by_columns(by_columns),
          next(next),
          end(end),
          down(down),
          right(right),
          order(order) {
        if constexpr (IS_KEPT) {
            this->image = opaque(image);
            shift = Pair(down, right).kept();
            limit = (Pair(conv.height - 1, conv.width - 1) - shift).kept();
        }
    }

    LM_MEMBER void advance() {
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            const int window = next;
            const int number = divide(window, by_window), rest = window - number * static_cast<int>(by_window.divisor);
            const int line = divide(rest, by_columns);
            h = line * conv.stride_h;
            w = (rest - line * static_cast<int>(by_columns.divisor)) * conv.stride_w;
            offsets[part] = ((order.place_of(number) * conv.height + h) * conv.width + w) * conv.image_pitch;
            if (window >= end) h = OUTSIDE;
            places[part] = Pair(h, w);
            next += WARP;
        }
    }

    LM_MEMBER const E* at(int k, int part, bool& inside) const {
        if constexpr (PAIRS) {
            const Pair its = IS_KEPT ? shift : Pair(down, right);
            const Pair last = IS_KEPT ? limit : Pair(conv.height - 1, conv.width - 1) - its;
            const Pair seen(shuffle(places[part].both, PARTS > 1 ? k % WARP : k));
            inside = are_natural(seen + its, last - seen);
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
// For a slice of the batch, k are the whole stages of windows in it: its first stage begins at a stage of the whole
// batch, and its last one ends at one or at the end of the split.  An open split continues from `open_in`, and one
// that does not end here goes to `open_out`, so its sums are those of the whole batch.
//
// MAPS_V elements of the maps and V of the image are copied at a time.  Images that lie frame by frame have a loop of
// their own, which leaves that of images in order as it is.
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
    const Maps* maps = p.maps + (group * conv.outputs + m);
    const Image* image =
        p.image + (static_cast<long long>(down * conv.width + right) * conv.image_pitch + group * conv.channels + c);
    const int end = start + depth, maps_depth = m < conv.outputs ? depth : 0;
    Product product;
    const long long of_group = static_cast<long long>(conv.outputs) * width;
    const auto row_of = [&](int i) {
        const int k = m0 + product.m_of(i);
        return k < conv.outputs ? k * width : -1;
    };
    if (windows.before > 0) load_tile<RUN>(product, p.open_in + group * of_group, row_of, n0, width);
    const auto multiply_columns = [&](auto maps_column, auto order) {
        using Column = ImageColumn<V, PAIRS, Image, decltype(order)>;
        Columns<T::M, T::THREADS, MAPS_V, decltype(maps_column)> a(maps_column);
        Columns<T::N, T::THREADS, V, Column> b(Column(image, conv, p.by_window, p.by_columns, start + lane_of_warp(),
                                                      end, n < width ? down : OUTSIDE, right, order));
        multiply<T>(shared, depth, a, b, product);
    };
    if (IS_NARROW<Maps> || p.frames.per_item.divisor == 1)
        multiply_columns(MapsColumn<MAPS_V, Maps>{maps + static_cast<long long>(start) * conv.maps_pitch,
                                                  conv.maps_pitch, maps_depth},
                         InOrder());
    else if constexpr (!IS_NARROW<Maps>)
        multiply_columns(MapsColumnByFrame<MAPS_V, Maps>{maps, p.frames.of_maps(), p.by_window, conv.maps_pitch,
                                                         maps_depth, start + lane_of_warp(), 0},
                         p.frames.of_image());
    const bool ends = windows.ends;
    const int groups = gridDim.z / p.splits;
    float* dw = (ends ? p.dw + (split - p.first_split) * groups * of_group : p.open_out) + group * of_group;
    const Epilogue<float> epilogue = {nullptr, ends && p.accumulate ? dw : nullptr, nullptr, 0, 0.0f};
    store_tile<RUN, T, 2>(product, dw, row_of, n0, width, epilogue);
}

}  // namespace lm
