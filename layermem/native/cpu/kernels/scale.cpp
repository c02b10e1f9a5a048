//     y = factor x + bias      dx = factor dy      dfactor = sum of dy x      dbias = sum of dy
//
// with factor and bias per channel, and sums over everything else.
#include "cpu/kernels/scale.h"

#include "cpu/kernels/channels.h"
#include "cpu/kernels/registry.h"

namespace layermem::cpu {

Launch scale_forward(const Channels& shape, float* y, const float* x, const float* factor, OrNull<const float> bias) {
    shape.check();
    ChannelAffine args = affine_args(shape, AffineKind::scale, y, x);
    args.scale = factor;
    args.bias = bias;
    return [=, &kernels = channel_kernels()] { run_affine(kernels, args); };
}

Launch bias_forward(const Channels& shape, float* y, const float* x, const float* bias) {
    shape.check();
    ChannelAffine args = affine_args(shape, AffineKind::shift, y, x);
    args.bias = bias;
    return [=, &kernels = channel_kernels()] { run_affine(kernels, args); };
}

int64_t scale_backward_workspace_bytes(const Channels& shape) { return sum_workspace_bytes(shape); }

Launch scale_backward(const Channels& shape, const ScaleBackward& args, void* workspace) {
    shape.check();
    // dfactor = sum dy x and dbias = sum dy come from one pass; dbias alone from a cheaper one.
    ChannelSum sum{};
    sum.shape = shape;
    sum.kind = args.dfactor ? SumKind::product : SumKind::plain;
    sum.a = args.dy;
    sum.x = args.x;
    ChannelAffine gradient = affine_args(shape, AffineKind::scale, args.dx, args.dy, args.accumulate_dx);
    gradient.scale = args.factor;
    return [=, &kernels = channel_kernels(), &reduction = reduction_kernels()] {
        float* sums = static_cast<float*>(workspace);
        if (args.dfactor || args.dbias) run_sums(kernels, sum, sums);  // before dx, which may lie over x or dy
        if (args.dfactor) add_parts(reduction, shape, args.dfactor, sums, 0, args.accumulate_dfactor);
        if (args.dbias) add_parts(reduction, shape, args.dbias, sums, args.dfactor ? 1 : 0, args.accumulate_dbias);
        if (args.dx) run_affine(kernels, gradient);
    };
}

LAYERMEM_KERNEL(scale_forward)
LAYERMEM_KERNEL(bias_forward)
LAYERMEM_KERNEL(scale_backward_workspace_bytes)
LAYERMEM_KERNEL(scale_backward)

}  // namespace layermem::cpu
