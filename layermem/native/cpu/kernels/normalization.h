// BatchNorm, alone or fused with Scale and ReLU.  x is [outer][channels][inner]; mean and inv_std are [channels].
// With a storage of 16 bits, of x, y and their gradients, inner is 1.
//
//     xhat = (x - mean) inv_std,  inv_std = 1 / sqrt(variance + eps)
//     y = xhat                                                  BatchNorm
//     y = relu(xhat factor + bias)                              fused with Scale [and ReLU]
//     y = relu(xhat factor + bias + residual)                   fused with Scale, a sum [and ReLU]
//
// Kernels named global take mean and variance from the moving averages (use_global_stats); those named recompute read
// the mean and inv_std that forward stored.  y may be x; dx may be x or dy.
#pragma once
#include "cpu/kernels/launch.h"
#include "cpu/microkernels/activation.h"
#include "cpu/microkernels/channels.h"
#include "cpu/microkernels/half.h"

namespace layermem::cpu {

// BatchNorm's three blobs: sums of means and variances, and the sum of their weights.  All null: not to be changed.
struct MovingAverages {
    OrNull<float> w0, w1, w2;
    float fraction = 0;  // of the old average that is kept
};

int64_t batch_norm_forward_workspace_bytes(const Channels& shape);
Launch batch_norm_forward(const Channels& shape, float* y, const float* x, float* mean, float* inv_std,
                          const MovingAverages& averages, float eps, void* workspace, Storage storage = Storage::fp32);
Launch batch_norm_recompute(const Channels& shape, float* y, const float* x, const float* mean, const float* inv_std,
                            Storage storage = Storage::fp32);

int64_t batch_norm_backward_workspace_bytes(const Channels& shape);
Launch batch_norm_backward(const Channels& shape, float* dx, const float* x, const float* dy, const float* mean,
                           const float* inv_std, bool accumulate, void* workspace, Storage storage = Storage::fp32);

int64_t batch_norm_global_workspace_bytes(const Channels& shape);
Launch batch_norm_global_forward(const Channels& shape, float* y, const float* x, const MovingAverages& averages,
                                 float eps, void* workspace, Storage storage = Storage::fp32);
Launch batch_norm_global_backward(const Channels& shape, float* dx, const float* dy, const MovingAverages& averages,
                                  float eps, bool accumulate, void* workspace, Storage storage = Storage::fp32);

// BatchNorm, Scale and (relu) ReLU as one op that keeps x, mean and inv_std only.  Backward finds from x, by the same
// arithmetic as forward, where y was positive; not behind a residual, where forward may write a mask instead.
struct FusedNorm {
    Channels shape;
    const float *x, *factor, *bias;
    OrNull<float> mean, inv_std;  // written by forward, read by recompute and backward; null for global
    bool relu;
    OrNull<const float> residual;     // forward: added before the ReLU; null for none
    ReluMask mask;                    // of y; forward: its bits are written where not null
    Storage storage = Storage::fp32;  // of x, y, residual, dy and dx
};
struct FusedNormGradients {  // null for a gradient that is not wanted
    OrNull<float> dx, dfactor, dbias;
    bool accumulate_dx, accumulate_dfactor, accumulate_dbias;
};
int64_t batch_norm_fused_workspace_bytes(const Channels& shape);  // of all three
Launch batch_norm_fused_forward(const FusedNorm& norm, float* y, const MovingAverages& averages, bool recompute,
                                void* workspace, float eps = 0);
Launch batch_norm_fused_global_forward(const FusedNorm& norm, float* y, const MovingAverages& averages, float eps,
                                       void* workspace);
Launch batch_norm_fused_backward(const FusedNorm& norm, const FusedNormGradients& gradients, const float* dy,
                                 void* workspace);

// Forward and backward in two passes over slices of a batch: `outer` are the outer indices of `shape` in it.  Statistics
// and sums are carried, in bytes of moments_carry_bytes and channel_sums_carry_bytes (channels.h); the last slice alone
// writes mean, inv_std and the averages, or sums [2][channels], dfactor and dbias.  recompute is the second pass of forward.
Launch batch_norm_statistics(const Channels& shape, const float* x, OrNull<float> mean, OrNull<float> inv_std,
                             const MovingAverages& averages, float eps, void* carry, int64_t first = 0, int64_t of = 0);
Launch batch_norm_gradient_sums(const Channels& shape, OrNull<float> sums, const float* x, const float* dy,
                                const float* mean, const float* inv_std, void* carry, int64_t first = 0,
                                int64_t of = 0);
Launch batch_norm_fused_gradient_sums(const FusedNorm& norm, OrNull<float> sums, const FusedNormGradients& gradients,
                                      const float* dy, void* carry, void* workspace, int64_t first = 0,
                                      int64_t of = 0);                     // slope [channels]
int64_t batch_norm_input_gradient_workspace_bytes(const Channels& shape);  // of both
Launch batch_norm_input_gradient(const Channels& shape, float* dx, const float* x, const float* dy, const float* mean,
                                 const float* inv_std, const float* sums, bool accumulate, void* workspace,
                                 int64_t first = 0, int64_t of = 0);
Launch batch_norm_fused_input_gradient(const FusedNorm& norm, float* dx, const float* dy, const float* sums,
                                       bool accumulate, void* workspace, int64_t first = 0, int64_t of = 0);

// The averages move by each row of statistics in turn: means and variances [rows][channels], factors [rows]; averages
// without a factor have none.
Launch move_averages(int64_t channels, int64_t rows, const MovingAverages& averages, const float* x0, const float* x1,
                     OrNull<const float> x2);

}  // namespace layermem::cpu
