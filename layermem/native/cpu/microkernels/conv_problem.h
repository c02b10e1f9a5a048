// The geometry of a convolution, as fprop sees it.
//
//     x [n][h][w][c]      w [k][kh][kw][c / groups]      y [n][ho][wo][k]        contiguous, channels last
//
// A Deconvolution is the same problem with the roles of x and y exchanged: its forward is dgrad, its dgrad fprop.
//
// A step that runs in slices computes images [first, first + n) of a batch of `items`.  Algorithms and the order of sums
// are those of the whole batch, so that its bits come out.
#pragma once
#include <cstdint>

namespace layermem::cpu {

struct ConvProblem {
    int64_t n, c, h, w;                              // of x
    int64_t k;                                       // channels of y
    int64_t kh, kw, sh, sw, ph, pw, dh, dw, groups;  // kernel, stride, pad, dilation
    int64_t first = 0, items = 0;                    // of the batch; items = 0: x is the whole batch

    int64_t ho() const { return (h + 2 * ph - dh * (kh - 1) - 1) / sh + 1; }
    int64_t wo() const { return (w + 2 * pw - dw * (kw - 1) - 1) / sw + 1; }
    int64_t group_c() const { return c / groups; }
    int64_t group_k() const { return k / groups; }
    int64_t taps() const { return kh * kw; }
    int64_t weights() const { return k * taps() * group_c(); }
    int64_t batch() const { return items ? items : n; }
    bool is_slice() const { return n < batch(); }
    bool is_last() const { return first + n == batch(); }
    void check() const;  // std::invalid_argument, with what is wrong

    // With few input channels a row of the window (kw * c floats, contiguous in the image) is taken as one tap.
    bool row_is_tap() const { return groups == 1 && dw == 1 && kw > 1 && c <= 16 && kw * c <= 256; }
};

}  // namespace layermem::cpu
