// One output pixel after the other: a convolution, or one residue class of a strided data gradient, as a GEMM whose
// left operand is never built.  Rows of it are found in the image by pointer.
//
//     out[n, i*out_step + out_first][:] (+)= sum over taps t of  in[n, i*in_step + t][0..length) . packed[t]
//
// where a tap that leaves the image reads zeros.  (h and w alike; in and out are channels-last.)
#pragma once
#include <vector>

#include "unit.h"

namespace layermem::cpu {

struct Tap {
    int64_t h, w;  // where the tap reads, from i*in_step
};

struct Sweep {
    int64_t images, rows_h, rows_w;  // grid of output pixels
    int64_t in_h, in_w, in_pitch;    // pixels, floats from one pixel to the next
    int64_t in_step_h, in_step_w;
    int64_t out_h, out_w, out_pitch;
    int64_t out_first_h, out_first_w, out_step_h, out_step_w;
    std::vector<Tap> taps;
    int64_t length;        // floats a tap reads, contiguous
    int64_t span;          // pixels a tap reads: 1, or more where a whole row of the window is one tap
    int64_t columns;       // output channels
    int64_t groups;        // each with its own `length` input and `columns` output channels, side by side
    int64_t packed_pitch;  // floats from one group's packed weights to the next's

    int64_t rows() const { return images * rows_h * rows_w; }
};

// Packed weights: for each panel of output channels [taps * length][panel width], panels one after the other.
struct Panel {
    int64_t column;  // first output channel
    int vectors;     // registers
    int last;        // floats in use of the last register
    int64_t offset;  // floats from the start of the packed weights, for one step of the reduction
};
std::vector<Panel> panels(const Unit&, int64_t columns);

// Floats that `depth` packed steps of `columns` channels take on any unit.
inline int64_t packed_floats(int64_t depth, int64_t columns) { return depth * ((columns + 15) / 16 * 16); }

void run_sweep(const Unit&, const Sweep&, float* out, const float* in, const float* packed, const float* bias,
               bool accumulate, bool relu);

}  // namespace layermem::cpu
