// Vectors of length one, times a learned scale; formulas are in microkernels/l2norm.h.
#pragma once
#include "cpu/kernels/launch.h"
#include "cpu/microkernels/l2norm.h"

namespace layermem::cpu {

struct L2NormShape {
    int64_t pixels, channels, group;  // x [pixels][channels]; `group` consecutive pixels share a norm
    bool shared;                      // one scale, else one per channel
};

// The workspace is that of forward and backward.  y may be x, and dx may be x or dy.
int64_t l2norm_workspace_bytes(const L2NormShape& shape, bool is_slice);
Launch l2norm_forward(const L2NormShape& shape, float eps, float* y, const float* x, const float* scale,
                      void* workspace);

struct L2NormBackward {
    OrNull<float> dx, dscale;  // null for a gradient that is not wanted
    const float *x, *dy;
    OrNull<const float> scale;  // for dx
    bool accumulate_dx, accumulate_dscale;
};
// Slices of a batch, with `pixels` of its pixels each, carry the sums of dscale in rising order; only the last writes
// it.
int64_t l2norm_carry_bytes(int64_t pixels, int64_t channels);  // pixels: of the whole batch
Launch l2norm_backward(const L2NormShape& shape, float eps, const L2NormBackward& args, void* workspace,
                       int64_t first = 0, int64_t of = 0, void* carry = nullptr);

}  // namespace layermem::cpu
