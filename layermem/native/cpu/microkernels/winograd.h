// The transforms of Winograd's F(m x m, 3x3) for m = 2 and 4, see kernels/winograd.h; lanes are channels.
#pragma once
#include <cstdint>

#include "cpu/isa/isa.h"
#include "cpu/microkernels/half.h"

namespace layermem::cpu {

struct WinogradTiles {         // between an image and transformed tiles [0, ...), counted from `first`
    int64_t h, w, c;           // the image
    int64_t tiles_h, tiles_w;  // tiles along it, m pixels apart
    int64_t pixel;             // floats from one pixel to the next: channels of all groups
    int64_t top, left;         // first pixel of the first tile: -pad for tiles of m + 2 pixels, 0 for those of m
    int64_t first;             // number of the first tile, of all images
    int64_t frames, step;      // places of images, as in ConvProblem; frames = 0: in their order
    int64_t pitch;             // floats from one element of the transformed tiles to the next
    float* tiles;              // [elements][tiles][c]
    const float* in;           // image that is read, or null
    float* out;                // image that is written, or null
    const float* bias;         // [c], or null
    bool accumulate, relu;     // of out
};

struct WinogradWeights {
    int64_t k, c;
    const float* w;  // [k][3][3][c]
    float* dw;       // likewise
    float* tiles;    // of dw: [elements][k][c]
    bool accumulate;
};

struct PackedPanel {  // of transformed weights, for GEMM
    float* packed;    // element f at packed + f * pitch, each [steps][width]
    int64_t pitch;
    int64_t column, columns, width;  // columns of w from `column` on; zeros from `columns` to `width`
    int64_t first;                   // step with which `packed` begins
};

using TransformTiles = void (*)(const WinogradTiles&, int64_t begin, int64_t end);

struct WinogradKernels {                         // of pixels, by their Storage
    TransformTiles transform_input[kStorages];   // (m + 2)^2 pixels to a tile: B' d B
    TransformTiles transform_output[kStorages];  // a tile to m^2 pixels: A' m A
    TransformTiles transform_dy[kStorages];      // m^2 pixels of dy to a tile: A d A'
    // Transformed weights G g G' for the steps [begin, end): of fprop, whose steps are c and whose columns are k ...
    void (*pack_fprop)(const WinogradWeights&, const PackedPanel&, int64_t begin, int64_t end);
    // ... and of dgrad, whose windows are rotated by 180 degrees; steps are k, columns are c.
    void (*pack_dgrad)(const WinogradWeights&, const PackedPanel&, int64_t begin, int64_t end);
    void (*transform_dw)(const WinogradWeights&, int64_t begin, int64_t end);  // dw = G' u G, for k in [begin, end)
};
LAYERMEM_KERNEL_TABLE(WinogradKernels, winograd2_kernels)
LAYERMEM_KERNEL_TABLE(WinogradKernels, winograd4_kernels)

}  // namespace layermem::cpu
