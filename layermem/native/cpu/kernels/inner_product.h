// InnerProduct: y [m][n] = x [m][k] w^T + bias with w [n][k];  dx = dy w;  dw = dy^T x.
//
// The weights may be most of a net's bytes, so no kernel copies them as a whole; only wgrad may need a workspace.
#pragma once
#include "cpu/kernels/launch.h"
#include "cpu/kernels/update.h"
#include "cpu/microkernels/activation.h"

namespace layermem::cpu {

// relu: y becomes max(y, 0);  mask: of that y, as relu_forward writes it, or null
Launch inner_product_fprop(int64_t m, int64_t n, int64_t k, float* y, const float* x, const float* w,
                           OrNull<const float> bias, bool relu, const ReluMask& mask);
// w may be a band: n of the rows of larger weights.  dy then has a column for each row of these, `dy_outputs` in all,
// and points to the first column of the band.  Bands accumulated in order give the bits of the whole.  0: w is whole.
Launch inner_product_dgrad(int64_t m, int64_t n, int64_t k, float* dx, const float* dy, const float* w, bool accumulate,
                           int64_t dy_outputs = 0);
// Slices of a batch carry sums as those of conv_wgrad do.
int64_t inner_product_wgrad_workspace_bytes(int64_t m, int64_t n, int64_t k, int64_t first = 0, int64_t of = 0);
int64_t inner_product_wgrad_carry_bytes(int64_t m, int64_t n, int64_t k);
Launch inner_product_wgrad(int64_t m, int64_t n, int64_t k, float* dw, const float* x, const float* dy, bool accumulate,
                           OrNull<void> workspace, int64_t first = 0, int64_t of = 0, void* carry = nullptr);

// dw of a band, with the bits of wgrad where that carries nothing for the whole w.
Launch inner_product_band_wgrad(int64_t m, int64_t n, int64_t k, float* dw, const float* x, const float* dy,
                                int64_t dy_outputs, bool accumulate);

// wgrad and the update of w in one pass: dw never exists as a whole.  The bits are those of wgrad followed by update
// where wgrad takes no workspace.  args.dw is not read.
UpdateLaunch inner_product_backward_update(int64_t m, int64_t n, int64_t k, const float* x, const float* dy,
                                           const Update& args, int64_t dy_outputs = 0);

}  // namespace layermem::cpu
