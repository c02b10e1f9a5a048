// How Winograd's convolutions (winograd.cpp) are divided: the size of tiles, and the batches and chunks that they pass in.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/kernels/winograd.h"
#include "cpu/microkernels/winograd.h"

namespace layermem::cpu {

constexpr int64_t kBatchBytes = 2 << 20;  // bytes of tiles in a batch: more leave the cache, fewer make small products
constexpr int64_t kMinChunkBytes = 1 << 20;   // least bytes of a chunk's weights, if one batch serves all chunks
constexpr int64_t kChunkBytes = 4 << 20;      // most bytes of them in this case: they stay in cache until the product
constexpr int64_t kMaxChunkBytes = 18 << 20;  // most bytes of them if each chunk transforms its input tiles again
constexpr int64_t kMaxTileBytes = 32 << 20;   // most bytes of input tiles of one batch that serves all chunks
constexpr int64_t kMinTiles = 48;       // of 4x4 pixels: for fewer, 36 transformed weights instead of 16 take too long
constexpr int64_t kSkew = 80;           // floats between elements, so that they do not fall into one cache set
constexpr int64_t kChunkChannels = 32;  // a chunk has a multiple of this many output channels
constexpr int64_t kFewFpropTiles = 32;  // most tiles for which tasks transform weights piece by piece; fprop has more,
constexpr int64_t kFewDgradTiles = 8;   // since it reads weights across their order, and takes longer to transform them

// F(m x m, 3x3): m x m outputs per tile of (m + 2)^2 elements.
struct Winograd {
    int64_t m;
    int64_t elements() const { return (m + 2) * (m + 2); }
    int64_t along(int64_t pixels) const { return ceil_div(pixels, m); }  // tiles along an axis
    int64_t tiles(int64_t images, int64_t h, int64_t w) const { return images * along(h) * along(w); }
    const WinogradKernels& kernels() const { return m == 4 ? winograd4_kernels() : winograd2_kernels(); }  // active ISA
};

// F(4x4, 3x3) unless the batch has few tiles, or many of its products are for pixels beyond the border.
inline Winograd winograd_of(const ConvProblem& p) {
    const Winograd small{2}, large{4};
    const int64_t tiles = large.tiles(p.batch(), p.ho(), p.wo());
    const int64_t products = large.elements() * tiles,
                  others = small.elements() * small.tiles(p.batch(), p.ho(), p.wo());
    return tiles >= kMinTiles && 10 * products <= 9 * others ? large : small;
}

// Tiles of a batch: a multiple of 48, the rows of several GEMM tiles, at least 48.  All tiles, where the transformed
// weights are large and take `ratio` times the bytes of the tiles or more: then weights pass through the cache once.
// `in_c`: channels of the input tiles.
inline int64_t batch_tiles(const Winograd& f, const ConvProblem& p, int64_t tiles, int64_t in_c, int64_t ratio) {
    const int64_t bytes = f.elements() * 4;  // of a channel of a tile
    const bool few = tiles * ratio <= std::min(p.c, p.k) && bytes * tiles * in_c <= kMaxTileBytes;
    if (few && bytes * p.c * p.k > kChunkBytes) return tiles;
    return std::min(tiles, std::max<int64_t>(kBatchBytes / (bytes * (p.c + p.k)) / 48 * 48, 48));
}

// Floats of one element of `tiles` tiles.
inline int64_t element_floats(int64_t tiles, int64_t channels) { return tiles * channels + kSkew; }

// Floats of all elements of `tiles` tiles; no skew lies behind the last.
inline int64_t all_elements_floats(const Winograd& f, int64_t tiles, int64_t channels) {
    return f.elements() * element_floats(tiles, channels) - kSkew;
}

// Floats of one element of packed weights, and of all elements.
inline int64_t packed_pitch(int64_t depth, int64_t columns) { return packed_floats(depth, columns) + kSkew; }
inline int64_t all_packed_floats(const Winograd& f, int64_t depth, int64_t columns) {
    return f.elements() * packed_pitch(depth, columns) - kSkew;
}

// Output channels of a chunk, which are multiplied with `others` channels each.  Where one batch of `tiles` serves all
// chunks, each chunk reads its input tiles again: its weights take at least as many bytes.
inline int64_t chunk_channels(const Winograd& f, bool one_batch, int64_t tiles, int64_t channels, int64_t others) {
    const int64_t bytes = f.elements() * 4 * others;  // of an output channel's weights, and of an input tile
    const int64_t most = one_batch ? std::clamp(bytes * tiles, kMinChunkBytes, kChunkBytes) : kMaxChunkBytes;
    return std::min(channels, std::max(most / bytes / kChunkChannels * kChunkChannels, kChunkChannels));
}

// The address behind `floats` floats of a workspace, aligned.
inline float* part_after(float* part, int64_t floats) {
    return part + aligned_bytes<float>(floats) / static_cast<int64_t>(sizeof(float));
}

// One group of a convolution is a convolution by itself.  Its pixels lie further apart than the group's own channels
// require, because the channels of the other groups lie between them.
struct Group {
    ConvProblem p;             // with groups = 1
    int64_t x_pixel, y_pixel;  // floats from one pixel to the next
};

inline Group one_group(const ConvProblem& p) {
    Group group{p, p.c, p.k};
    group.p.c = p.group_c();
    group.p.k = p.group_k();
    group.p.groups = 1;
    return group;
}

// A group as the transforms see it: fprop reads x and writes y, dgrad reads dy and writes dx.
struct Direction {
    int64_t in_h, in_w, in_c, in_pixel, out_h, out_w, out_c, out_pixel, images, pad_h, pad_w, few_tiles;
};

inline Direction fprop_direction(const Group& group) {
    const ConvProblem& p = group.p;
    return {p.h, p.w, p.c, group.x_pixel, p.ho(), p.wo(), p.k, group.y_pixel, p.n, p.ph, p.pw, kFewFpropTiles};
}

// dgrad is a convolution of dy with the window rotated by 180 degrees and pad 2 - ph (kernel - 1 - pad).
inline Direction dgrad_direction(const Group& group) {
    const ConvProblem& p = group.p;
    return {p.ho(), p.wo(), p.k, group.y_pixel, p.h, p.w, p.c, group.x_pixel, p.n, 2 - p.ph, 2 - p.pw, kFewDgradTiles};
}

}  // namespace layermem::cpu
