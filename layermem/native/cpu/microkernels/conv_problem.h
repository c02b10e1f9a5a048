// The geometry of a convolution, as fprop sees it.
//
//     x [n][h][w][c]      w [k][kh][kw][c / groups]      y [n][ho][wo][k]        contiguous, channels last
//
// A Deconvolution is the same problem with the roles of x and y exchanged: its forward is dgrad, its dgrad fprop.
//
// A step that runs in slices computes images [first, first + n) of a batch of `items`.  Algorithms and the order of sums
// are those of the whole batch, so that its bits come out.
//
// wgrad also takes images that are frames of items and lie frame by frame: image i is frame i % frames of item
// i / frames, and the next frame of an item lies x_step images behind it in x, y_step in y.
#pragma once
#include <cstdint>

namespace layermem::cpu {

struct ConvProblem {
    int64_t n, c, h, w;                              // of x
    int64_t k;                                       // channels of y
    int64_t kh, kw, sh, sw, ph, pw, dh, dw, groups;  // kernel, stride, pad, dilation
    int64_t first = 0, items = 0;                    // of the batch; items = 0: x is the whole batch
    int64_t frames = 0, x_step = 0, y_step = 0;      // of wgrad; frames = 0: the images lie in their order

    int64_t ho() const { return (h + 2 * ph - dh * (kh - 1) - 1) / sh + 1; }
    int64_t wo() const { return (w + 2 * pw - dw * (kw - 1) - 1) / sw + 1; }
    int64_t group_c() const { return c / groups; }
    int64_t group_k() const { return k / groups; }
    int64_t taps() const { return kh * kw; }
    int64_t weights() const { return k * taps() * group_c(); }
    int64_t batch() const { return items ? items : n; }
    bool is_slice() const { return n < batch(); }
    bool is_last() const { return first + n == batch(); }
    // The places of image i, and of pixel m of all images of y, where frames lie `step` images apart.
    int64_t place(int64_t i, int64_t step) const { return frames ? i / frames + i % frames * step : i; }
    int64_t pixel_place(int64_t m, int64_t step) const;
    void check() const;  // std::invalid_argument, with what is wrong

    // With few input channels a row of the window (kw * c floats, contiguous in the image) is taken as one tap.
    bool row_is_tap() const { return groups == 1 && dw == 1 && kw > 1 && c <= 16 && kw * c <= 256; }
};

inline int64_t ConvProblem::pixel_place(int64_t m, int64_t step) const {
    const int64_t pixels = ho() * wo();
    return frames ? place(m / pixels, step) * pixels + m % pixels : m;
}

}  // namespace layermem::cpu
