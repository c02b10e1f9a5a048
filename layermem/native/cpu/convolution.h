// Convolution and InnerProduct in float32.  Geometry, the bytes of scratch each kernel takes, and the kernels.
//
//     x  [N][H][W][C]      w  [K][kh][kw][C/groups]      y  [N][Ho][Wo][K]        all contiguous, channels last
//
// Deconvolution is the same three kernels with the roles of x and y swapped (its input is y, its output x).
#pragma once
#include "activation.h"
#include "launch.h"

namespace layermem::cpu {

struct Conv {
    int64_t n, c, h, w;  // the large side: what a Convolution reads
    int64_t k;           // channels of the small side: what it writes
    int64_t kh, kw, sh, sw, ph, pw, dh, dw, groups;

    int64_t ho() const { return (h + 2 * ph - dh * (kh - 1) - 1) / sh + 1; }
    int64_t wo() const { return (w + 2 * pw - dw * (kw - 1) - 1) / sw + 1; }
    int64_t cg() const { return c / groups; }
    int64_t kg() const { return k / groups; }
    int64_t taps() const { return kh * kw; }
    void check() const;  // std::invalid_argument, with what is wrong

    // With few input channels a row of the window (kw * c floats, contiguous in the image) is taken as one tap.
    bool whole_rows() const { return groups == 1 && dw == 1 && kw > 1 && c <= 16 && kw * c <= 256; }
};

int64_t conv_forward_workspace(const Conv&);
int64_t conv_backward_data_workspace(const Conv&);
int64_t conv_backward_weights_workspace(const Conv&);

// accumulate: y += ..., without bias;  relu: y is rectified; mask: as relu_forward writes it, or null
Launch conv_forward(const Conv&, float* y, const float* x, const float* w, const float* bias, bool accumulate,
                    bool relu, uint8_t* mask, void* scratch);
Launch conv_backward_data(const Conv&, float* dx, const float* dy, const float* w, const float* bias, bool accumulate,
                          void* scratch);
Launch conv_backward_weights(const Conv&, float* dw, const float* x, const float* dy, bool accumulate, void* scratch);

// out[c] (+)= the sum of in[0..rows)[c]: a bias gradient
int64_t column_sums_workspace(int64_t rows, int64_t columns);
Launch column_sums(int64_t rows, int64_t columns, float* out, const float* in, bool accumulate, void* scratch);

// y [M][N] = x [M][K] w^T + bias with w [N][K];  dx = dy w;  dw = dy^T x.  Only the last may take scratch.
Launch inner_product_forward(int64_t m, int64_t n, int64_t k, float* y, const float* x, const float* w,
                             const float* bias, bool relu, uint8_t* mask);
Launch inner_product_backward_data(int64_t m, int64_t n, int64_t k, float* dx, const float* dy, const float* w,
                                   bool accumulate);
int64_t inner_product_backward_weights_workspace(int64_t m, int64_t n, int64_t k);
Launch inner_product_backward_weights(int64_t m, int64_t n, int64_t k, float* dw, const float* x, const float* dy,
                                      bool accumulate, void* scratch);

// The last one and the update of w in one: dw is nowhere as a whole.  The bits are those of the two, where that one
// takes no scratch.  Of Update, dw is not looked at.
RatedLaunch inner_product_learn(int64_t m, int64_t n, int64_t k, const float* x, const float* dy, const Update&);

}  // namespace layermem::cpu
