// Convolution as a GEMM whose left operand, the im2col matrix, is never built: its rows are pointers into the image.
//
// Each output pixel is a row, each tap of the window a slice of the reduction:
//
//     out[n, i * out_step + out_first][:] (+)= sum over taps t of  in[n, i * in_step + t][0..length) . packed[t]
//
// for h and w alike, where a tap outside the image reads zeros.  in and out are channels-last.  This describes fprop as
// a whole, and dgrad as one such product per residue class of pixels modulo the stride.
#pragma once
#include <vector>

#include "cpu/microkernels/gemm.h"
#include "cpu/microkernels/half.h"

namespace layermem::cpu {

struct Tap {
    int64_t h, w;  // offset of the pixel that the tap reads, from i * in_step
};

struct ConvGemm {
    int64_t images, grid_h, grid_w;                            // output pixels
    int64_t in_h, in_w, in_pitch;                              // pixels; floats from one pixel to the next
    int64_t in_step_h, in_step_w;                              // pixels of `in` per step of the grid
    int64_t out_h, out_w, out_pitch;                           // out: pixels; floats from one pixel to the next
    int64_t out_first_h, out_first_w, out_step_h, out_step_w;  // pixels of `out`
    std::vector<Tap> taps;
    int64_t length;        // contiguous floats that a tap reads
    int64_t span;          // pixels that a tap reads: 1, or the row of the window that is one tap
    int64_t columns;       // output channels of a group
    int64_t groups;        // each with its own `length` input and `columns` output channels, side by side
    int64_t packed_pitch;  // floats from one group's packed weights to the next's

    int64_t rows() const { return images * grid_h * grid_w; }
};

// Packed weights are [panel][taps * length][panel width]: a panel is as many output channels as one tile is wide.
struct Panel {
    int64_t column;  // first output channel
    int vectors;     // width in registers
    int last_lanes;  // floats in use of the last register
    int64_t offset;  // of the panel in packed weights with one reduction step; times the number of steps otherwise
};
std::vector<Panel> make_panels(const GemmKernels& kernels, int64_t columns);

// Output channels of a panel, without the padding of its last register.
inline int64_t used_columns(const GemmKernels& kernels, const Panel& panel) {
    return (panel.vectors - 1) * int64_t{kernels.lanes} + panel.last_lanes;
}

// Floats of `depth` packed reduction steps of `columns` channels, on any ISA: registers have at most 16 lanes.
inline int64_t packed_floats(int64_t depth, int64_t columns) { return depth * ((columns + 15) / 16 * 16); }

void run_implicit_gemm(const GemmKernels& kernels, const ConvGemm& gemm, float* out, const float* in,
                       const float* packed, const float* bias, bool accumulate, bool relu,
                       Storage of_in = Storage::fp32, Storage of_out = Storage::fp32);

}  // namespace layermem::cpu
