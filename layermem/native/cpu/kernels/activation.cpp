// Pointwise functions, ReLU and Clip.  A task is a range of kTaskElements elements; the microkernel sees the whole
// arrays and its range.  kTaskElements is a multiple of 8, so two tasks never write the same byte of a mask (a bit per
// element).
#include "cpu/kernels/activation.h"

#include <stdexcept>
#include <utility>

#include "cpu/kernels/registry.h"
#include "cpu/kernels/stored.h"
#include "cpu/microkernels/pointwise_kinds.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {

namespace {

// The names are generated from the table of kinds, which the microkernels read too.
PointwiseKind pointwise_kind(const std::string& name) {
#define LAYERMEM_NAMED_KIND(name, formula, value) {#name, PointwiseKind::name},
    static const std::pair<const char*, PointwiseKind> kKinds[] = {LAYERMEM_POINTWISE_KINDS(LAYERMEM_NAMED_KIND)};
#undef LAYERMEM_NAMED_KIND
    for (const auto& [known, kind] : kKinds)
        if (name == known) return kind;
    throw std::invalid_argument("pointwise: unknown function '" + name + "'");
}

}  // namespace

Launch pointwise(const std::string& kind, int64_t count, float* out, OrNull<const float> a, OrNull<const float> b,
                 float alpha, float beta, float gamma, bool accumulate, Storage storage) {
    const Pointwise args{pointwise_kind(kind), out, a, b, alpha, beta, gamma, accumulate};
    check_count(count);
    return [=, &kernels = activation_kernels(), convert = Conversion(storage)] {
        for_each_stored_piece(count, storage, [&](int64_t begin, int64_t size) {
            alignas(64) float a[kPieceFloats], b[kPieceFloats], out[kPieceFloats];
            Pointwise piece = args;
            piece.a = convert.read(args.a, begin, size, a);
            piece.b = convert.read(args.b, begin, size, b);
            piece.out = convert.open(args.out, begin, size, out, args.accumulate);
            kernels.pointwise(piece, 0, size);
            convert.write(args.out, begin, size, out);
        });
    };
}

namespace {

// A function of x or dy with a mask, piece by piece: begin is a multiple of 8, a whole byte of the mask.
template <class Args>
Launch masked(int64_t count, const Args& args, Storage storage, bool accumulate,
              void (*kernel)(const Args&, int64_t begin, int64_t end)) {
    check_count(count);
    return [=, convert = Conversion(storage)] {
        for_each_stored_piece(count, storage, [&](int64_t begin, int64_t size) {
            alignas(64) float in[kPieceFloats], out[kPieceFloats];
            Args piece = args;
            piece.in = convert.read(args.in, begin, size, in);
            piece.out = convert.open(args.out, begin, size, out, accumulate);
            piece.mask = mask_from(args.mask, begin);
            kernel(piece, 0, size);
            convert.write(args.out, begin, size, out);
        });
    };
}

}  // namespace

Launch relu_forward(int64_t count, float* y, const float* x, const ReluMask& mask, float slope, Storage storage) {
    const Relu args{y, x, mask, slope, false};
    return masked(count, args, storage, false, activation_kernels().relu_forward);
}

Launch relu_backward(int64_t count, float* dx, const float* dy, uint8_t* mask, float slope, bool accumulate,
                     Storage storage) {
    const Relu args{dx, dy, {mask}, slope, accumulate};
    return masked(count, args, storage, args.accumulate, activation_kernels().relu_backward);
}

Launch clip_forward(int64_t count, float* y, const float* x, uint8_t* mask, float lowest, float highest,
                    Storage storage) {
    const Clip args{y, x, mask, lowest, highest};
    return masked(count, args, storage, false, activation_kernels().clip_forward);
}

// In contrast to the launches above this runs at once: it is the last step of another launch.
void write_mask(const ActivationKernels& kernels, int64_t count, const float* y, const ReluMask& mask,
                Storage storage) {
    for_each_stored_piece(count, storage, [&, convert = Conversion(storage)](int64_t begin, int64_t size) {
        alignas(64) float in[kPieceFloats];
        // y is above any largest_zero exactly where x is
        kernels.relu_forward({nullptr, convert.read(y, begin, size, in), mask_from(mask, begin), 0, false}, 0, size);
    });
}

LAYERMEM_KERNEL(pointwise)
LAYERMEM_KERNEL(relu_forward)
LAYERMEM_KERNEL(relu_backward)
LAYERMEM_KERNEL(clip_forward)

}  // namespace layermem::cpu
