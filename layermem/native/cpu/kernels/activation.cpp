// Pointwise functions, ReLU and Clip.  A task is a range of kTaskElements elements; the microkernel sees the whole
// arrays and its range.  kTaskElements is a multiple of 8, so two tasks never write the same byte of a mask (a bit per
// element).
#include "cpu/kernels/activation.h"

#include <stdexcept>
#include <utility>

#include "cpu/kernels/element_tasks.h"
#include "cpu/microkernels/pointwise_kinds.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {

// The names are generated from the table of kinds, which bindings and documentation read too.
PointwiseKind pointwise_kind(const std::string& name) {
#define LAYERMEM_NAMED_KIND(name, formula, value) {#name, PointwiseKind::name},
    static const std::pair<const char*, PointwiseKind> kKinds[] = {LAYERMEM_POINTWISE_KINDS(LAYERMEM_NAMED_KIND)};
#undef LAYERMEM_NAMED_KIND
    for (const auto& [known, kind] : kKinds)
        if (name == known) return kind;
    throw std::invalid_argument("pointwise: unknown function '" + name + "'");
}

Launch pointwise(int64_t count, const Pointwise& args) {
    check_count(count);
    return [=, &kernels = activation_kernels()] {
        parallel_for_ranges(count, kTaskElements,
                            [&](int64_t begin, int64_t end) { kernels.pointwise(args, begin, end); });
    };
}

Launch relu_forward(int64_t count, const Relu& args) {
    check_count(count);
    return [=, &kernels = activation_kernels()] {
        parallel_for_ranges(count, kTaskElements,
                            [&](int64_t begin, int64_t end) { kernels.relu_forward(args, begin, end); });
    };
}

Launch relu_backward(int64_t count, const Relu& args) {
    check_count(count);
    return [=, &kernels = activation_kernels()] {
        parallel_for_ranges(count, kTaskElements,
                            [&](int64_t begin, int64_t end) { kernels.relu_backward(args, begin, end); });
    };
}

Launch clip_forward(int64_t count, const Clip& args) {
    check_count(count);
    return [=, &kernels = activation_kernels()] {
        parallel_for_ranges(count, kTaskElements,
                            [&](int64_t begin, int64_t end) { kernels.clip_forward(args, begin, end); });
    };
}

// In contrast to the launches above this runs at once: it is the last step of another launch.
void write_mask(const ActivationKernels& kernels, int64_t count, const float* y, const ReluMask& mask) {
    const Relu args{nullptr, y, mask, 0, false};  // y is above any largest_zero exactly where x is
    parallel_for_ranges(count, kTaskElements,
                        [&](int64_t begin, int64_t end) { kernels.relu_forward(args, begin, end); });
}

}  // namespace layermem::cpu
