// conv_dgrad_merged: the data gradients of two convolutions that read the same image, and their sum.
//
//      image[p,c] = sum_ok first.maps[o,k] first.filter[k,t,c]  +  sum_ok last.maps[o,k] last.filter[k,t,c]
//
//   launch   as conv_dgrad, of the phases that both convolutions have
//   traffic  as two of conv_dgrad, but that image is written once: what a block stores of the first sum it reads again,
//            from L2, before others take its place there
//   assumes  as _v4 or _v8; one group, one stride, one size of the image
//   ties     as of two launches, the last of which accumulates: the first sum is rounded where it is stored
//   source   conv.cuh; Caffe split_layer.cu, Backward_gpu, which adds the gradients of a blob's readers
#pragma once
#include "conv.cuh"

namespace lm {

template <class E, class Weights>
struct DgradPart {
    const E* maps;
    const Weights* filter;
    ConvProblem problem;
    Divider by_outputs;
};

template <class E, class Weights = float>
struct ConvDgradMergedArgs {
    E* image;
    const unsigned char* kept;  // as in ConvDgradArgs
    DgradPart<E, Weights> first, last;
    int accumulate;
};

// Rows (0) or columns (1) of the phase of `conv` that begins with pixel number `start` of each stride_h x stride_w: pads
// differ, and so do the numbers of phases.
LM_FN PhaseAxis axis_from(int start, const ConvProblem& conv, int axis) {
    if (axis == 0)
        return phase_axis((start / conv.stride_w + conv.pad_h) % conv.stride_h, conv.kernel_h, conv.stride_h,
                          conv.pad_h, conv.dilation_h, conv.height);
    return phase_axis((start % conv.stride_w + conv.pad_w) % conv.stride_w, conv.kernel_w, conv.stride_w, conv.pad_w,
                      conv.dilation_w, conv.width);
}

// Zeros in the rows of a tile.  Called by all threads.
template <class T, class E>
LM_FN void clear_tile(E* image, const int4* pixels, int pitch, int n0, int columns) {
    constexpr int RUN = 4, RUNS = T::N / RUN;
    const float zeros[RUN] = {};
    for (int i = threadIdx.x; i < T::M * RUNS; i += T::THREADS) {
        const int pixel = pixels[i / RUNS].w, column = n0 + i % RUNS * RUN;
        if (pixel >= 0 && column < columns) store<RUN>(image + pixel * pitch + column, zeros);
    }
}

// What a product has in shared memory, to leave registers.
struct DgradPhase {
    PhaseAxis axes[2];
    PhaseTaps taps;
    int column;  // the first one of the tile
};

// One of the two data gradients, of the block's tile: stored, or added to what is there.  Called by all threads.
template <class T, class Product, int V, class E, class Weights>
LM_FN void merge_dgrad(const DgradPart<E, Weights>& part, const DgradPhase& phase, const int4* pixels, float* shared,
                       E* to, int n0, bool accumulate, const unsigned char* kept) {
    const ConvProblem& conv = part.problem;
    Product product;
    add_dgrad<T, V>(product, shared, pixels, phase.taps, conv, part.maps, part.filter, part.by_outputs, 0, n0);
    const auto row_of = [&](int row) {
        const int pixel = pixels[product.m_of(row)].w;
        return pixel < 0 ? -1 : pixel * conv.image_pitch;
    };
    store_gradient<T>(product, shared, to, row_of, phase.column, conv, nullptr, accumulate, kept, NoMore());
}

// Per phase, as conv_dgrad.  Pixels under no window of either convolution, as most are of 1x1 windows with a stride, are
// cleared without a product.
template <class T, class Product, int V, class E, class Weights>
LM_FN void conv_dgrad_merged(const ConvDgradMergedArgs<E, Weights>& p) {
    LM_DYN_SHARED(float, shared);
    LM_SHARED(int4, pixels, [T::M]);
    LM_SHARED(DgradPhase, phases, [2]);
    const ConvProblem& conv = p.first.problem;
    const int part = static_cast<int>(threadIdx.x) / WARP, axis = lane_of_warp();
    if (part < 2 && axis < 2)  // a warp for each of the two, since divisions take long
        phases[part].axes[axis] = axis_from(blockIdx.z, part == 0 ? conv : p.last.problem, axis);
    block_sync();
    const Place<T> place(conv.channels);
    const PhaseAxis *of_first = phases[0].axes, *of_last = phases[1].axes;
    const int count = conv.images * of_first[0].pixels * of_first[1].pixels;
    if (place.m >= count) return;  // phases differ in size
    if (part < 2 && axis == 0) {
        const PhaseAxis* axes = phases[part].axes;
        phases[part].taps = phase_taps(axes[0], axes[1], part == 0 ? conv : p.last.problem);
        phases[part].column = place.n;
    }
    list_pixels<T>(pixels, conv, of_first[0], of_first[1], place.m, count);
    block_sync();
    if (phases[0].taps.maps.depth + phases[1].taps.maps.depth == 0 && !p.accumulate) {
        clear_tile<T>(p.image, pixels, conv.image_pitch, place.n, conv.channels);
        return;
    }
    merge_dgrad<T, Product, V>(p.first, phases[0], pixels, shared, p.image, place.n, p.accumulate, nullptr);
    block_sync();  // no thread reads what is of the first one any more
    list_pixels<T>(pixels, p.last.problem, of_last[0], of_last[1], Place<T>(conv.channels).m, count);
    block_sync();
    merge_dgrad<T, Product, V>(p.last, phases[1], pixels, shared, p.image, phases[1].column, true, p.kept);
}

// Products on tensor cores run nowhere else, and these would need more registers there than there are.
constexpr bool MERGES_DGRADS = LM_ARCH >= 800;

template <class E>
using MergedArgs = ConvDgradMergedArgs<E>;
template <class E>
using PackedMergedArgs = ConvDgradMergedArgs<E, E>;

#define LM_DGRAD_MERGED(tile, T, Product, V, Args)                                        \
    LM_KERNEL(conv_dgrad_merged_##tile##_v##V, Args, p, T::THREADS, T::BLOCKS) {          \
        if constexpr (MERGES_DGRADS) conv_dgrad_merged<T, Product<T, true, false>, V>(p); \
    }

// Two tiles: others would hardly be faster for any net.
#define LM_DGRAD_MERGED_TILES(Product, V, Args)          \
    LM_DGRAD_MERGED(128x128, T128x128, Product, V, Args) \
    LM_DGRAD_MERGED(128x64, T128x64, Product, V, Args)

}  // namespace lm
