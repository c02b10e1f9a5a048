//     y = x > 0 ? x : slope x      dx = x > 0 ? dy : slope dy      dslope = sum of dy min(x, 0)
//
// with a slope per channel, and the sum over everything else.
#include "cpu/kernels/activation_prelu.h"

#include "cpu/kernels/channels.h"
#include "cpu/kernels/registry.h"

namespace layermem::cpu {

Launch prelu_forward(const Channels& shape, float* y, const float* x, const float* slope) {
    shape.check();
    ChannelAffine args = affine_args(shape, AffineKind::prelu, y, x);
    args.scale = slope;
    return [=, &kernels = channel_kernels()] { run_affine(kernels, args); };
}

int64_t prelu_backward_workspace_bytes(const Channels& shape) { return sum_workspace_bytes(shape); }

Launch prelu_backward(const Channels& shape, OrNull<float> dx, OrNull<float> dslope, const float* x, const float* dy,
                      OrNull<const float> slope, bool accumulate_dx, bool accumulate_dslope, OrNull<void> workspace) {
    shape.check();
    ChannelSum sum{};
    sum.shape = shape;
    sum.kind = SumKind::prelu;
    sum.a = dy;
    sum.x = x;
    ChannelAffine gradient = affine_args(shape, AffineKind::prelu_backward, dx, dy, accumulate_dx);
    gradient.x = x;
    gradient.scale = slope;
    return [=, &kernels = channel_kernels(), &reduction = reduction_kernels()] {
        if (dslope) {  // before dx, which may lie over x or dy
            float* sums = static_cast<float*>(workspace);
            run_sums(kernels, sum, sums);
            add_parts(reduction, shape, dslope, sums, 0, accumulate_dslope);
        }
        if (dx) run_affine(kernels, gradient);
    };
}

LAYERMEM_KERNEL(prelu_forward)
LAYERMEM_KERNEL(prelu_backward_workspace_bytes)
LAYERMEM_KERNEL(prelu_backward)

}  // namespace layermem::cpu
