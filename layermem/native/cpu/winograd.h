// 3x3 convolution with stride 1 by Winograd's F(2x2, 3x3): 16 products per channel pair where the direct sum takes 36.
//
//     y tile 2x2 = A' [ (G g G') * (B' d B) ] A        d: the 4x4 pixels under the tile, g: the window
//     dw 3x3     = G' [ sum over tiles (A dy A') * (B' d B) ] G
//
// so a convolution becomes 16 matrix products, one for each element of the 4x4 squares, between two cheap transforms
// that go along channels.  The data gradient is the convolution of dy with the window turned round.
// source  Lavin, Gray: Fast algorithms for convolutional neural networks (CVPR 2016)
#pragma once
#include <cstdint>

#include "convolution.h"

namespace layermem::cpu {

constexpr int64_t SQUARE = 16;  // elements of a transformed tile

struct WinogradTiles {             // pixels -> squares and back, for tiles [0, ...) from `first` on
    int64_t h, w, c, down, right;  // image; tiles along it
    int64_t pixel;                 // floats from one pixel to the next: c of all groups
    int64_t top, left;             // of the first tile's first pixel: -pad for 4x4 tiles, 0 for 2x2 ones
    int64_t first, pitch;          // pitch: floats from one element of the squares to the next
    float* squares;                // [16][tiles][c]
    const float* in;
    float* out;
    const float* bias;
    bool accumulate, relu;
};

struct WinogradWeights {
    int64_t k, c;
    const float* w;  // [k][3][3][c]
    float* dw;
    float* squares;  // dw's: [16][k][c]
    bool accumulate;
};

bool is_winograd(const Conv&);
int64_t winograd_workspace(const Conv&);
int64_t winograd_weights_workspace(const Conv&);
Launch winograd_forward(const Conv&, float* y, const float* x, const float* w, const float* bias, bool accumulate,
                        bool relu, uint8_t* mask, void* scratch);
Launch winograd_backward_data(const Conv&, float* dx, const float* dy, const float* w, const float* bias,
                              bool accumulate, void* scratch);
Launch winograd_backward_weights(const Conv&, float* dw, const float* x, const float* dy, bool accumulate,
                                 void* scratch);

}  // namespace layermem::cpu
