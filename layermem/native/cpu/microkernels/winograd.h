// The transforms of Winograd's F(2x2, 3x3), see kernels/winograd.h; lanes are channels.
#pragma once
#include <cstdint>

#include "cpu/isa/isa.h"

namespace layermem::cpu {

constexpr int64_t kTileElements = 16;  // of a transformed 4x4 tile

struct WinogradTiles {         // between an image and transformed tiles [0, ...), counted from `first`
    int64_t h, w, c;           // the image
    int64_t tiles_h, tiles_w;  // tiles along it, 2 pixels apart
    int64_t pixel;             // floats from one pixel to the next: channels of all groups
    int64_t top, left;         // first pixel of the first tile: -pad for 4x4 tiles, 0 for 2x2 tiles
    int64_t first;             // number of the first tile, of all images
    int64_t pitch;             // floats from one element of the transformed tiles to the next
    float* tiles;              // [16][tiles][c]
    const float* in;           // image that is read, or null
    float* out;                // image that is written, or null
    const float* bias;         // [c], or null
    bool accumulate, relu;     // of out
};

struct WinogradWeights {
    int64_t k, c;
    const float* w;  // [k][3][3][c]
    float* dw;       // likewise
    float* tiles;    // of dw: [16][k][c]
    bool accumulate;
};

struct WinogradKernels {
    void (*transform_input)(const WinogradTiles&, int64_t begin, int64_t end);   // 4x4 pixels to a tile: B' d B
    void (*transform_output)(const WinogradTiles&, int64_t begin, int64_t end);  // a tile to 2x2 pixels: A' m A
    void (*transform_dy)(const WinogradTiles&, int64_t begin, int64_t end);      // 2x2 pixels of dy to a tile: A d A'
    // Transformed weights G g G' of fprop, packed for GEMM: element f at packed + f * pitch, [c][width] with columns
    // k from `column` on; zeros from `columns` to `width`.
    void (*pack_fprop)(const WinogradWeights&, float* packed, int64_t pitch, int64_t column, int64_t columns,
                       int64_t width);
    // Likewise of dgrad, whose windows are rotated by 180 degrees: [k][width] for k in [begin, end), columns are c.
    void (*pack_dgrad)(const WinogradWeights&, float* packed, int64_t pitch, int64_t column, int64_t columns,
                       int64_t width, int64_t begin, int64_t end);
    void (*transform_dw)(const WinogradWeights&, int64_t begin, int64_t end);  // dw = G' u G, for k in [begin, end)
};
LAYERMEM_KERNEL_TABLE(WinogradKernels, winograd_kernels)

}  // namespace layermem::cpu
