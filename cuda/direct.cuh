// Common parts of direct convolutions (depthwise.cu, grouped.cu): shape, epilogue, stores of a strip of pixels, and the
// arguments of weight gradients.
//
//   launch   of fprop and dgrad: a block has 32 channels of strips of pixels, a thread V channels of one
//   traffic  a store writes y and the bits of a mask, and reads the residual
//   assumes  tensors below 2^31 elements
//   source   Caffe base_conv_layer.cpp
#pragma once
#include "element.cuh"

namespace lm {

constexpr int THREADS = 256;
constexpr int CHANNELS = 32;  // of a block
template <int V>
constexpr int LANES = CHANNELS / V;  // threads across them

struct DirectShape {
    int images, height, width, channels, maps_h, maps_w, outputs;
    int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
};

// A null pointer leaves its term out.
template <class E>
struct DirectEpilogue {
    const float* bias;
    const E* residual;                 // laid out as y; y itself to accumulate
    unsigned char* mask;               // one bit per element of y, set where y > largest_zero (pointwise.cuh)
    const unsigned char* bottom_mask;  // one bit per element of y: those without it become zero
    int relu;
    float largest_zero;
};

LM_FN bool is_within(int at, int size) { return static_cast<unsigned>(at) < static_cast<unsigned>(size); }

// Loads V channels of `pixels` pixels, `pitch` elements from one to the next; zeros for absent pixels.
template <int PIXELS, int V, class E>
LM_FN void load_pixels(float (&to)[PIXELS][V], const E* from, int pitch, int first, int size, bool exists) {
#pragma unroll
    for (int j = 0; j < PIXELS; ++j) {
#pragma unroll
        for (int v = 0; v < V; ++v) to[j][v] = 0.0f;
        if (exists && is_within(first + j, size)) load<V>(to[j], from + j * pitch);
    }
}

// Applies the epilogue to `pixels` pixels of a row, from column `first` of `size` on, and stores V channels of each,
// the first ones `at` elements after y.  Called by all lanes.
template <int PIXELS, int V, class E>
LM_FN void store_pixels(E* y, int at, int pitch, int first, int size, bool exists, const float (&bias)[V],
                        float (&sum)[PIXELS][V], const DirectEpilogue<E>& epilogue) {
    float residual[PIXELS][V];
    unsigned mask_bits[PIXELS];
    if (epilogue.residual != nullptr) load_pixels(residual, epilogue.residual + at, pitch, first, size, exists);
    if (epilogue.bottom_mask != nullptr) {
#pragma unroll
        for (int j = 0; j < PIXELS; ++j) {
            const unsigned bit = at + j * pitch;
            mask_bits[j] = exists && is_within(first + j, size) ? epilogue.bottom_mask[bit / 8] >> bit % 8 : 0;
        }
    }
#pragma unroll
    for (int j = 0; j < PIXELS; ++j) {
        unsigned bits = 0;
#pragma unroll
        for (int v = 0; v < V; ++v) {
            float& element = sum[j][v];
            if (epilogue.bias != nullptr) element += bias[v];
            if (epilogue.residual != nullptr) element = residual[j][v] + element;
            if (epilogue.relu) element = positive(element);
            if (epilogue.bottom_mask != nullptr && (mask_bits[j] >> v & 1u) == 0) element = 0.0f;
            if (element > epilogue.largest_zero) bits |= 1u << v;
        }
        const bool is_there = exists && is_within(first + j, size);
        if (is_there) store<V>(y + at + j * pitch, sum[j]);
        if (epilogue.mask == nullptr) continue;
        const int number = static_cast<int>(threadIdx.x) % (8 / V);  // of this lane among those of a byte
        bits <<= number * V;
#pragma unroll
        for (int distance = 1; distance < 8 / V; distance *= 2) bits |= shuffle_xor(bits, distance);
        if (is_there && number == 0) epilogue.mask[(at + j * pitch) / 8] = static_cast<unsigned char>(bits);
    }
}

constexpr int WARPS = 4;  // of a block
constexpr int WGRAD_THREADS = WARPS * WARP;

template <class E>
struct DirectWgradArgs {
    float* parts;          // [groups][bands][K,kh,kw] of the groups that end here
    const float* open_in;  // [bands][K,kh,kw] of the first group, which earlier slices left open; or null
    float* open_out;       // the same of the last group, which goes on in a later slice; or null; may be `open_in`
    const E* maps;
    const E* image;
    DirectShape of;
    Divider by_strips_w, by_bands;
    Divider by_outputs;    // of a group
    int warps, count;      // of a part; parts at hand
    int rows_each;         // of a band
    int first_group;       // of those at hand
    int images_each;       // of a group: image i of the whole batch is of group i / images_each
    int first_image, end;  // images at hand, counted in the whole batch
    int images_whole;
    int accumulate;
};

}  // namespace lm

#define LM_DIRECT(name, Args, threads, blocks, ...)                                \
    LM_KERNEL(name, Args<float>, p, threads, blocks) { __VA_ARGS__(p); }           \
    LM_KERNEL(name##_bf16, Args<lm::Bf16>, p, threads, blocks) { __VA_ARGS__(p); } \
    LM_KERNEL(name##_fp16, Args<lm::Fp16>, p, threads, blocks) { __VA_ARGS__(p); }
