// Forward is one pass for the moments of each channel and one that applies them; backward is one pass for two sums per
// channel, from which mean_dy and covariance follow, and one for dx.  Everything between the passes is per channel,
// small, and done by the calling thread or a few tasks.
//
//     traffic  forward: x read twice, y written once; backward: x and dy read twice, dx written once
//     parts    the first pass cuts `outer` into sum_parts(shape) chunks, a number that depends on the shape only; their
//              results are added in order, so that neither threads nor recomputation change a bit
#include "cpu/kernels/normalization.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cpu/kernels/activation.h"
#include "cpu/kernels/channels.h"
#include "cpu/kernels/registry.h"
#include "cpu/kernels/stored.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

constexpr int64_t kTaskChannels = 64;     // channels whose statistics a task merges
constexpr int64_t kPieceElements = 4096;  // elements of a piece, between a residual sum and its ReLU
constexpr int64_t kTaskPieces = 4;

ChannelSum moments_args(const Channels& shape, const float* x) {
    ChannelSum sum{};
    sum.shape = shape;
    sum.kind = SumKind::moments;
    sum.a = x;
    return sum;
}

// A fraction of 0 leaves nothing of the old average, whatever it holds.
inline void move_average(float& average, float fraction, float value) {
    average = fraction == 0 ? value : average * fraction + value;
}

// Mean and inverse standard deviation of a batch of `shape`; the moving averages are updated where there are any.
// moments [parts][2][channels]: the mean and the sum of squared differences of each part.
void merge_statistics(const Channels& shape, const float* moments, float* mean, float* inv_std,
                      const MovingAverages& averages, float eps) {
    const int64_t parts = sum_parts(shape);
    const auto count = static_cast<double>(shape.outer * shape.inner);
    // Parts are merged in order (Chan, Golub, LeVeque 1979): never E[x^2] - E[x]^2, which cancels.
    const auto merge_parts = [&](int64_t c) {
        double total_mean = 0, m2 = 0, before = 0;
        for (int64_t i = 0; i < parts; ++i) {
            const float* part = moments + i * 2 * shape.channels + c;
            const int64_t lines = chunk_begin(shape.outer, parts, i + 1) - chunk_begin(shape.outer, parts, i);
            const auto added = static_cast<double>(lines * shape.inner);
            const double delta = part[0] - total_mean, share = added / (before + added);
            total_mean += delta * share;
            m2 += part[shape.channels] + delta * delta * before * share;
            before += added;
        }
        mean[c] = static_cast<float>(total_mean);
        inv_std[c] = static_cast<float>(1 / std::sqrt(m2 / count + static_cast<double>(eps)));
        if (averages.w0) {
            const auto unbiased = static_cast<float>(m2 / std::max(count - 1, 1.0));
            move_average(averages.w0[c], averages.fraction, mean[c]);
            move_average(averages.w1[c], averages.fraction, unbiased);
        }
    };
    parallel_for_ranges(shape.channels, kTaskChannels, [&](int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; ++c) merge_parts(c);
    });
    // Caffe keeps the moving averages unnormalized, with the sum of their weights in a third blob.
    if (averages.w0) move_average(*averages.w2, averages.fraction, 1);
}

// Computes the moments of x too; `moments` is workspace.
void batch_statistics(const ChannelKernels& kernels, const Channels& shape, const float* x, float* mean, float* inv_std,
                      const MovingAverages& averages, float eps, float* moments, Storage storage) {
    run_sums(kernels, moments_args(shape, x), moments, storage);
    merge_statistics(shape, moments, mean, inv_std, averages, eps);
}

// Writes mean and inverse standard deviation of the moving averages to statistics [2][channels].  Without averages.w0
// only the latter is meaningful.
void global_statistics(const Channels& shape, const MovingAverages& averages, float eps, float* statistics) {
    const double factor = *averages.w2, share = factor == 0 ? 0 : 1 / factor;
    for (int64_t c = 0; c < shape.channels; ++c) {
        statistics[c] = static_cast<float>(averages.w0 ? averages.w0[c] * share : 0);
        const double variance = averages.w1[c] * share;
        statistics[shape.channels + c] = static_cast<float>(1 / std::sqrt(variance + static_cast<double>(eps)));
    }
}

ChannelAffine normalize_args(const Channels& shape, float* y, const float* x, const float* mean, const float* inv_std) {
    ChannelAffine args = affine_args(shape, AffineKind::normalize, y, x);
    args.mean = mean;
    args.scale = inv_std;
    return args;
}

// The sums of backward over a batch, [2][channels]: of dy xhat, then of dy.
void add_gradient_parts(const ReductionKernels& reduction, const Channels& shape, const float* parts, float* sums) {
    add_parts(reduction, shape, sums, parts, 0, false);
    add_parts(reduction, shape, sums + shape.channels, parts, 1, false);
}

// Per channel of a batch of `shape`, in place of these sums: covariance = inv_std sum(dy xhat) / count, and
// mean_dy = sum dy / count.
void divide_gradient_sums(const Channels& shape, const float* inv_std, float* sums) {
    float *covariance = sums, *mean_dy = sums + shape.channels;
    const auto share = static_cast<float>(1.0 / static_cast<double>(shape.outer * shape.inner));
    for (int64_t c = 0; c < shape.channels; ++c) {
        mean_dy[c] *= share;
        covariance[c] *= share * inv_std[c];
    }
}

// The sums of backward's first pass, and dx of the second from these sums, divided by their count, [2][channels].
ChannelSum gradient_args(const Channels& shape, const float* x, const float* dy, const float* mean,
                         const float* inv_std) {
    ChannelSum sum{};
    sum.shape = shape;
    sum.kind = SumKind::normalized;
    sum.a = dy;
    sum.x = x;
    sum.mean = mean;
    sum.inv_std = inv_std;
    return sum;
}

void run_input_gradient(const ChannelKernels& kernels, const Channels& shape, float* dx, const float* x,
                        const float* dy, const float* mean, const float* inv_std, const float* sums, bool accumulate,
                        Storage storage = Storage::fp32) {
    ChannelAffine args = affine_args(shape, AffineKind::normalize_backward, dx, dy, accumulate);
    args.x = x;
    args.mean = mean;
    args.scale = inv_std;
    args.covariance = sums;
    args.mean_dy = sums + shape.channels;
    run_affine(kernels, args, storage);
}

// The sums and dx of the fused op, with slope = inv_std factor.
void multiply_slope(const Channels& shape, const float* factor, const float* inv_std, float* slope) {
    for (int64_t c = 0; c < shape.channels; ++c) slope[c] = inv_std[c] * factor[c];
}

ChannelSum fused_gradient_args(const FusedNorm& norm, const float* dy, const float* slope) {
    ChannelSum sum = gradient_args(norm.shape, norm.x, dy, norm.mean, norm.inv_std);
    sum.kind = SumKind::fused;
    sum.scale = slope;
    sum.bias = norm.bias;
    sum.relu = norm.relu;
    sum.largest_zero = norm.mask.largest_zero;
    return sum;
}

void add_scale_gradients(const ReductionKernels& reduction, const Channels& shape, const float* parts,
                         const FusedNormGradients& gradients) {
    if (gradients.dfactor) add_parts(reduction, shape, gradients.dfactor, parts, 0, gradients.accumulate_dfactor);
    if (gradients.dbias) add_parts(reduction, shape, gradients.dbias, parts, 1, gradients.accumulate_dbias);
}

void run_fused_input_gradient(const ChannelKernels& kernels, const FusedNorm& norm, float* dx, const float* dy,
                              const float* slope, const float* sums, bool accumulate) {
    ChannelAffine args = affine_args(norm.shape, AffineKind::fused_backward, dx, dy, accumulate);
    args.x = norm.x;
    args.mean = norm.mean;
    args.scale = slope;
    args.bias = norm.bias;
    args.covariance = sums;
    args.mean_dy = sums + norm.shape.channels;
    args.relu = norm.relu;
    args.largest_zero = norm.mask.largest_zero;
    run_affine(kernels, args, norm.storage);
}

// The shape of the whole batch, of which this launch has the indices `outer`.
Channels whole_of(const Channels& shape, const RowSlice& outer) { return {outer.all, shape.channels, shape.inner}; }

// y = relu((x - mean) slope + bias + residual).  The ReLU and its mask follow piece by piece, while y is in the
// first-level cache.
void run_fused_residual(const ChannelKernels& kernels, const FusedNorm& norm, float* y, const float* mean,
                        const float* slope) {
    ChannelAffine args = affine_args(norm.shape, AffineKind::fused_residual, y, norm.x);
    args.x = norm.residual;
    args.mean = mean;
    args.scale = slope;
    args.bias = norm.bias;
    const ActivationKernels& activation = activation_kernels();
    if (norm.storage != Storage::fp32) {
        for_each_stored_piece(
            norm.shape.count(), norm.storage, [&, convert = Conversion(norm.storage)](int64_t begin, int64_t size) {
                alignas(64) float x[kPieceFloats], residual[kPieceFloats], out[kPieceFloats];
                ChannelAffine piece = args;
                piece.a = convert.read(norm.x, begin, size, x);
                piece.x = convert.read(norm.residual, begin, size, residual);
                piece.out = out;
                affine_of_piece(kernels, piece, begin, size);
                if (norm.relu || norm.mask.bits)
                    activation.relu_forward({norm.relu ? out : nullptr, out, mask_from(norm.mask, begin), 0, false}, 0,
                                            size);
                convert.write(y, begin, size, out);
            });
        return;
    }
    const int64_t line = norm.shape.line(), whole_bytes = 16 / std::gcd(line, int64_t{16});  // of the mask, in lines
    const int64_t piece = ceil_div(kPieceElements, line * whole_bytes) * whole_bytes;
    parallel_for_ranges(norm.shape.lines(), kTaskPieces * piece, [&](int64_t begin, int64_t end) {
        for (int64_t first = begin; first < end; first += piece) {
            const int64_t last = std::min(first + piece, end);
            kernels.affine(args, first, last);
            if (norm.relu || norm.mask.bits)
                activation.relu_forward({norm.relu ? y : nullptr, y, norm.mask, 0, false}, first * line, last * line);
        }
    });
}

// y = relu((x - mean) slope + bias) with slope = inv_std * factor.  slope [channels] is workspace and may be inv_std.
// Backward evaluates the same expression, with the same fma, to find where y was positive, so y is not kept.
void run_fused(const ChannelKernels& kernels, const FusedNorm& norm, float* y, const float* mean, const float* inv_std,
               float* slope) {
    multiply_slope(norm.shape, norm.factor, inv_std, slope);
    if (norm.residual) return run_fused_residual(kernels, norm, y, mean, slope);
    ChannelAffine args = affine_args(norm.shape, AffineKind::fused, y, norm.x);
    args.mean = mean;
    args.scale = slope;
    args.bias = norm.bias;
    args.relu = norm.relu;
    run_affine(kernels, args, norm.storage);
}

}  // namespace

// workspace: moments [parts][2][channels]
int64_t batch_norm_forward_workspace_bytes(const Channels& shape) { return sum_workspace_bytes(shape); }

Launch batch_norm_forward(const Channels& shape, float* y, const float* x, float* mean, float* inv_std,
                          const MovingAverages& averages, float eps, void* workspace, Storage storage) {
    shape.check();
    return [=, &kernels = channel_kernels()] {
        batch_statistics(kernels, shape, x, mean, inv_std, averages, eps, static_cast<float*>(workspace), storage);
        run_affine(kernels, normalize_args(shape, y, x, mean, inv_std), storage);
    };
}

Launch batch_norm_recompute(const Channels& shape, float* y, const float* x, const float* mean, const float* inv_std,
                            Storage storage) {
    shape.check();
    return
        [=, &kernels = channel_kernels()] { run_affine(kernels, normalize_args(shape, y, x, mean, inv_std), storage); };
}

// workspace: mean, inv_std [channels] each
int64_t batch_norm_global_workspace_bytes(const Channels& shape) {
    shape.check();
    return aligned_bytes<float>(2 * shape.channels);
}

Launch batch_norm_global_forward(const Channels& shape, float* y, const float* x, const MovingAverages& averages,
                                 float eps, void* workspace, Storage storage) {
    shape.check();
    return [=, &kernels = channel_kernels()] {
        float* statistics = static_cast<float*>(workspace);
        global_statistics(shape, averages, eps, statistics);
        run_affine(kernels, normalize_args(shape, y, x, statistics, statistics + shape.channels), storage);
    };
}

// dx = dy inv_std: the statistics do not depend on x
Launch batch_norm_global_backward(const Channels& shape, float* dx, const float* dy, const MovingAverages& averages,
                                  float eps, bool accumulate, void* workspace, Storage storage) {
    shape.check();
    return [=, &kernels = channel_kernels()] {
        float* statistics = static_cast<float*>(workspace);
        global_statistics(shape, averages, eps, statistics);
        ChannelAffine args = affine_args(shape, AffineKind::scale, dx, dy, accumulate);
        args.scale = statistics + shape.channels;
        run_affine(kernels, args, storage);
    };
}

// workspace: the sums of parts [parts][2][channels], and of all [2][channels]
int64_t batch_norm_backward_workspace_bytes(const Channels& shape) { return sum_workspace_bytes(shape, 2); }

// dx = inv_std (dy - mean(dy) - xhat mean(dy xhat))
Launch batch_norm_backward(const Channels& shape, float* dx, const float* x, const float* dy, const float* mean,
                           const float* inv_std, bool accumulate, void* workspace, Storage storage) {
    shape.check();
    return [=, &kernels = channel_kernels(), &reduction = reduction_kernels()] {
        float* parts = static_cast<float*>(workspace);
        float* sums = parts + sum_floats(shape);
        run_sums(kernels, gradient_args(shape, x, dy, mean, inv_std), parts, storage);
        add_gradient_parts(reduction, shape, parts, sums);
        divide_gradient_sums(shape, inv_std, sums);
        run_input_gradient(kernels, shape, dx, x, dy, mean, inv_std, sums, accumulate, storage);
    };
}

// workspace: the sums of parts [parts][2][channels], slope [channels], and the sums of all [2][channels]
int64_t batch_norm_fused_workspace_bytes(const Channels& shape) { return sum_workspace_bytes(shape, 3); }

Launch batch_norm_fused_forward(const FusedNorm& norm, float* y, const MovingAverages& averages, bool recompute,
                                void* workspace, float eps) {
    norm.shape.check();
    return [=, &kernels = channel_kernels()] {
        float* own = static_cast<float*>(workspace);  // first for the moments, then for the slopes
        if (!recompute)
            batch_statistics(kernels, norm.shape, norm.x, norm.mean, norm.inv_std, averages, eps, own, norm.storage);
        run_fused(kernels, norm, y, norm.mean, norm.inv_std, own);
    };
}

Launch batch_norm_fused_global_forward(const FusedNorm& norm, float* y, const MovingAverages& averages, float eps,
                                       void* workspace) {
    norm.shape.check();
    return [=, &kernels = channel_kernels()] {
        float* mean = static_cast<float*>(workspace);
        float* inv_std = mean + norm.shape.channels;
        global_statistics(norm.shape, averages, eps, mean);
        run_fused(kernels, norm, y, mean, inv_std, inv_std);
    };
}

// d = dy, or 0 where relu and y <= 0;  slope = inv_std factor
// The mask d needs no stored y: its sign is recomputed from x, by the arithmetic of run_fused.
// dfactor = sum d xhat,  dbias = sum d,  dx = slope (d - mean(d) - xhat mean(d xhat))
Launch batch_norm_fused_backward(const FusedNorm& norm, const FusedNormGradients& gradients, const float* dy,
                                 void* workspace) {
    norm.shape.check();
    return [=, &kernels = channel_kernels(), &reduction = reduction_kernels()] {
        const Channels& shape = norm.shape;
        float* parts = static_cast<float*>(workspace);
        float* slope = parts + sum_floats(shape);
        float* sums = slope + shape.channels;
        multiply_slope(norm.shape, norm.factor, norm.inv_std, slope);
        run_sums(kernels, fused_gradient_args(norm, dy, slope), parts, norm.storage);
        add_scale_gradients(reduction, shape, parts, gradients);
        if (!gradients.dx) return;
        add_gradient_parts(reduction, shape, parts, sums);
        divide_gradient_sums(shape, norm.inv_std, sums);
        run_fused_input_gradient(kernels, norm, gradients.dx, dy, slope, sums, gradients.accumulate_dx);
    };
}

// ---- in two passes over slices of a batch ---------------------------------------------------------------------------

Launch batch_norm_statistics(const Channels& shape, const float* x, OrNull<float> mean, OrNull<float> inv_std,
                             const MovingAverages& averages, float eps, void* carry, int64_t first, int64_t of) {
    const RowSlice outer = row_slice(shape.outer, first, of);
    shape.check();
    return [=, &kernels = channel_kernels()] {
        float* moments = static_cast<float*>(carry);
        run_moments_of_slice(kernels, moments_args(shape, x), outer, moments);
        if (outer.is_last()) merge_statistics(whole_of(shape, outer), moments, mean, inv_std, averages, eps);
    };
}

Launch batch_norm_gradient_sums(const Channels& shape, OrNull<float> sums, const float* x, const float* dy,
                                const float* mean, const float* inv_std, void* carry, int64_t first, int64_t of) {
    const RowSlice outer = row_slice(shape.outer, first, of);
    shape.check();
    return [=, &kernels = channel_kernels(), &reduction = reduction_kernels()] {
        float* parts = static_cast<float*>(carry);
        run_sums_of_slice(kernels, reduction, gradient_args(shape, x, dy, mean, inv_std), outer, parts);
        if (outer.is_last()) add_gradient_parts(reduction, whole_of(shape, outer), parts, sums);
    };
}

Launch batch_norm_fused_gradient_sums(const FusedNorm& norm, OrNull<float> sums, const FusedNormGradients& gradients,
                                      const float* dy, void* carry, void* workspace, int64_t first, int64_t of) {
    const RowSlice outer = row_slice(norm.shape.outer, first, of);
    norm.shape.check();
    return [=, &kernels = channel_kernels(), &reduction = reduction_kernels()] {
        const Channels whole = whole_of(norm.shape, outer);
        float *parts = static_cast<float*>(carry), *slope = static_cast<float*>(workspace);
        multiply_slope(norm.shape, norm.factor, norm.inv_std, slope);
        run_sums_of_slice(kernels, reduction, fused_gradient_args(norm, dy, slope), outer, parts);
        if (!outer.is_last()) return;
        add_scale_gradients(reduction, whole, parts, gradients);
        add_gradient_parts(reduction, whole, parts, sums);
    };
}

// workspace: sums [2][channels], slope [channels]
int64_t batch_norm_input_gradient_workspace_bytes(const Channels& shape) {
    shape.check();
    return aligned_bytes<float>(3 * shape.channels);
}

Launch batch_norm_input_gradient(const Channels& shape, float* dx, const float* x, const float* dy, const float* mean,
                                 const float* inv_std, const float* sums, bool accumulate, void* workspace,
                                 int64_t first, int64_t of) {
    const RowSlice outer = row_slice(shape.outer, first, of);
    shape.check();
    return [=, &kernels = channel_kernels()] {
        float* own = static_cast<float*>(workspace);
        std::copy(sums, sums + 2 * shape.channels, own);
        divide_gradient_sums(whole_of(shape, outer), inv_std, own);
        run_input_gradient(kernels, shape, dx, x, dy, mean, inv_std, own, accumulate);
    };
}

Launch batch_norm_fused_input_gradient(const FusedNorm& norm, float* dx, const float* dy, const float* sums,
                                       bool accumulate, void* workspace, int64_t first, int64_t of) {
    const RowSlice outer = row_slice(norm.shape.outer, first, of);
    norm.shape.check();
    return [=, &kernels = channel_kernels()] {
        const int64_t channels = norm.shape.channels;
        float *own = static_cast<float*>(workspace), *slope = own + 2 * channels;
        std::copy(sums, sums + 2 * channels, own);
        multiply_slope(norm.shape, norm.factor, norm.inv_std, slope);
        divide_gradient_sums(whole_of(norm.shape, outer), norm.inv_std, own);
        run_fused_input_gradient(kernels, norm, dx, dy, slope, own, accumulate);
    };
}

Launch move_averages(int64_t channels, int64_t rows, const MovingAverages& averages, const float* x0, const float* x1,
                     OrNull<const float> x2) {
    check_count(channels);
    check_count(rows);
    return [=] {
        for (int64_t row = 0; row < rows; ++row) {
            for (int64_t c = 0; c < channels; ++c) {
                move_average(averages.w0[c], averages.fraction, x0[row * channels + c]);
                move_average(averages.w1[c], averages.fraction, x1[row * channels + c]);
            }
            if (averages.w2) move_average(*averages.w2, averages.fraction, x2[row]);
        }
    };
}

LAYERMEM_KERNEL(batch_norm_forward_workspace_bytes)
LAYERMEM_KERNEL(batch_norm_global_workspace_bytes)
LAYERMEM_KERNEL(batch_norm_backward_workspace_bytes)
LAYERMEM_KERNEL(batch_norm_forward)
LAYERMEM_KERNEL(batch_norm_recompute)
LAYERMEM_KERNEL(batch_norm_backward)
LAYERMEM_KERNEL(batch_norm_global_forward)
LAYERMEM_KERNEL(batch_norm_global_backward)
LAYERMEM_KERNEL(batch_norm_fused_workspace_bytes)
LAYERMEM_KERNEL(batch_norm_fused_forward)
LAYERMEM_KERNEL(batch_norm_fused_global_forward)
LAYERMEM_KERNEL(batch_norm_fused_backward)
LAYERMEM_KERNEL(move_averages)
LAYERMEM_KERNEL(batch_norm_statistics)
LAYERMEM_KERNEL(batch_norm_gradient_sums)
LAYERMEM_KERNEL(batch_norm_fused_gradient_sums)
LAYERMEM_KERNEL(batch_norm_input_gradient_workspace_bytes)
LAYERMEM_KERNEL(batch_norm_input_gradient)
LAYERMEM_KERNEL(batch_norm_fused_input_gradient)

}  // namespace layermem::cpu
