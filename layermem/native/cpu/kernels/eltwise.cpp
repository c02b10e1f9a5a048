// An Eltwise is composed of pointwise kernels on pieces that stay in cache, so that any number of arrays needs one pass
// over memory.  Two arrays are summed in place; in all other cases results wait in a buffer on the stack until a piece
// of every output is complete.
//
//     traffic    each input is read once, each output written once (and read where it accumulates)
//     overlays   y may lie on any input, and a dx on dy or on an input: within a piece all reads come before all
//                writes, and pieces of one task do not meet those of another
//     order      inputs are added in the order of the bottoms, so sums have the same bits in every plan
#include "cpu/kernels/eltwise.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "cpu/kernels/activation.h"
#include "cpu/kernels/registry.h"
#include "cpu/kernels/stored.h"
#include "cpu/microkernels/copy.h"
#include "cpu/microkernels/eltwise.h"
#include "cpu/microkernels/pointwise_kinds.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

constexpr int64_t kPieceElements = 4096;  // elements of a piece of a sum: they stay in cache from one array to the next
constexpr int64_t kBufferFloats = 16384;  // results of a piece that wait until all are complete: 64 KiB
constexpr size_t kMaxArrays = 256;        // most arrays of one op

// `others`: the number of coefficients or flags, one per array
void check(int64_t count, size_t arrays, size_t others, size_t min_arrays) {
    check_count(count);
    if (arrays < min_arrays || arrays > kMaxArrays || others != arrays)
        throw std::invalid_argument("eltwise: takes " + std::to_string(min_arrays) + " to " +
                                    std::to_string(kMaxArrays) + " arrays, with one coefficient or flag per array");
}

// The kernels that an Eltwise is composed of, on `size` elements of one task.
struct Kernels {
    const ActivationKernels& activation = activation_kernels();
    const CopyKernels& copying = copy_kernels();
    const EltwiseKernels& eltwise = eltwise_kernels();

    void multiply(float* out, const float* a, const float* b, int64_t size) const {
        activation.pointwise({PointwiseKind::multiply, out, a, b, 0, 0, 0, false}, 0, size);
    }
    void add(float* out, const float* a, float alpha, const float* b, float beta, int64_t size) const {
        activation.pointwise({PointwiseKind::add, out, a, b, alpha, beta, 0, false}, 0, size);
    }
    void copy(float* out, const float* in, float factor, bool accumulate, int64_t size) const {
        if (factor == 1)
            copying.copy_rows({out, in, 1, size, 0, 0, accumulate}, 0, 1);
        else
            activation.pointwise({PointwiseKind::scale, out, in, nullptr, factor, 0, 0, accumulate}, 0, size);
    }
};

// body(begin, size) for pieces of [0, count), each within one task; begin is a multiple of 8, a whole byte of a mask.
template <class Body>
void for_each_piece(int64_t count, const Body& body) {
    parallel_for_ranges(count, kTaskElements, [&](int64_t begin, int64_t end) {
        for (int64_t piece = begin; piece < end; piece += kPieceElements)
            body(piece, std::min(kPieceElements, end - piece));
    });
}

// For each piece: compute(i, buffer, begin, size) for every output that is not null, then all are stored, so that an
// output may lie over any input.
template <class Compute>
void compute_then_store(const Kernels& kernels, int64_t count, const std::vector<float*>& outs,
                        const std::vector<bool>& accumulate, const Compute& compute) {
    const int64_t wanted = std::count_if(outs.begin(), outs.end(), [](const float* out) { return out != nullptr; });
    if (wanted == 0) return;
    const int64_t step = std::min<int64_t>(2048, kBufferFloats / wanted / 16 * 16);
    parallel_for_ranges(count, kTaskElements, [&](int64_t begin, int64_t end) {
        alignas(64) float buffer[kBufferFloats];
        for (int64_t piece = begin; piece < end; piece += step) {
            const int64_t size = std::min(step, end - piece);
            float* result = buffer;
            for (size_t i = 0; i < outs.size(); ++i)
                if (outs[i]) {
                    compute(i, result, piece, size);
                    result += step;
                }
            result = buffer;
            for (size_t i = 0; i < outs.size(); ++i)
                if (outs[i]) {
                    kernels.copy(outs[i] + piece, result, 1, accumulate[i], size);
                    result += step;
                }
        }
    });
}

}  // namespace

Launch eltwise_sum(int64_t count, float* y, std::vector<const float*> xs, std::vector<float> coefficients, bool relu,
                   const ReluMask& mask, Storage storage) {
    check(count, xs.size(), coefficients.size(), 2);
    return [=, kernels = Kernels(), convert = Conversion(storage)] {
        const auto sum_of = [&](float* sum, int64_t begin, int64_t size) {
            alignas(64) float a[kPieceElements], b[kPieceElements];
            kernels.add(sum, convert.read(xs[0], begin, size, a), coefficients[0], convert.read(xs[1], begin, size, b),
                        coefficients[1], size);
            for (size_t i = 2; i < xs.size(); ++i)
                kernels.add(sum, sum, 1, convert.read(xs[i], begin, size, a), coefficients[i], size);
            if (relu || mask.bits)
                kernels.activation.relu_forward({sum, sum, mask_from(mask, begin), 0, false}, 0, size);
        };
        if (storage != Storage::fp32)
            for_each_piece(count, [&](int64_t begin, int64_t size) {
                alignas(64) float sum[kPieceElements];
                sum_of(sum, begin, size);
                convert.write(y, begin, size, sum);
            });
        else if (xs.size() == 2)  // y is written once per element, after both inputs were read: no buffer is needed
            for_each_piece(count, [&](int64_t begin, int64_t size) { sum_of(y + begin, begin, size); });
        else
            compute_then_store(kernels, count, {y}, {false},
                               [&](size_t, float* sum, int64_t begin, int64_t size) { sum_of(sum, begin, size); });
    };
}

Launch eltwise_product(int64_t count, float* y, std::vector<const float*> xs) {
    check(count, xs.size(), xs.size(), 2);
    return [=, kernels = Kernels()] {
        compute_then_store(kernels, count, {y}, {false}, [&](size_t, float* product, int64_t begin, int64_t size) {
            kernels.multiply(product, xs[0] + begin, xs[1] + begin, size);
            for (size_t i = 2; i < xs.size(); ++i) kernels.multiply(product, product, xs[i] + begin, size);
        });
    };
}

Launch eltwise_max(int64_t count, float* y, std::vector<const float*> xs, OrNull<uint8_t> argmax) {
    check(count, xs.size(), xs.size(), 2);
    return [=, kernels = Kernels()] {
        compute_then_store(kernels, count, {y}, {false}, [&](size_t, float* best, int64_t begin, int64_t size) {
            for (size_t i = 0; i < xs.size(); ++i)
                kernels.eltwise.max_forward(
                    {best, xs[i] + begin, argmax ? argmax + begin : nullptr, static_cast<int32_t>(i), false}, 0, size);
        });
    };
}

// A gradient that lies on dy is written last.  With relu each piece of dy is masked into a buffer before any is
// written.
Launch eltwise_sum_backward(int64_t count, std::vector<float*> dxs, const float* dy, std::vector<float> coefficients,
                            std::vector<bool> accumulate, OrNull<const uint8_t> mask, OrNull<const float> y,
                            Storage storage) {
    check(count, dxs.size(), coefficients.size(), 1);
    check(count, dxs.size(), accumulate.size(), 1);
    std::vector<size_t> order;
    for (const bool last : {false, true})
        for (size_t i = 0; i < dxs.size(); ++i)
            if (dxs[i] && (dxs[i] == dy) == last) order.push_back(i);
    return [=, kernels = Kernels(), convert = Conversion(storage)] {
        for_each_piece(count, [&](int64_t begin, int64_t size) {
            alignas(64) float masked[kPieceElements], in[kPieceElements], out[kPieceElements];
            const float* gradient = convert.read(dy, begin, size, in);
            if (mask) {
                auto* bits = const_cast<uint8_t*>(mask) + begin / 8;  // read only
                kernels.activation.relu_backward({masked, gradient, {bits}, 0, false}, 0, size);
                gradient = masked;
            } else if (y) {
                kernels.activation.pointwise(
                    {PointwiseKind::relu_backward, masked, gradient, convert.read(y, begin, size, out), 0, 0, 0, false},
                    0, size);
                gradient = masked;
            }
            for (const size_t i : order) {
                float* dx = convert.open(dxs[i], begin, size, out, accumulate[i]);
                kernels.copy(dx, gradient, coefficients[i], accumulate[i], size);
                convert.write(dxs[i], begin, size, out);
            }
        });
    };
}

// dx of each input is dy times the product of all other inputs: (arrays - 1) products per element and output.  Dividing
// y by the input (Caffe's unstable variant) would fail at zeros.
Launch eltwise_product_backward(int64_t count, const std::vector<float*>& dxs, const std::vector<const float*>& xs,
                                const float* dy, const std::vector<bool>& accumulate) {
    check(count, xs.size(), dxs.size(), 2);
    check(count, xs.size(), accumulate.size(), 2);
    return [=, kernels = Kernels()] {
        compute_then_store(kernels, count, dxs, accumulate, [&](size_t i, float* dx, int64_t begin, int64_t size) {
            const float* product = dy + begin;
            for (size_t j = 0; j < xs.size(); ++j) {
                if (j == i) continue;
                kernels.multiply(dx, product, xs[j] + begin, size);
                product = dx;
            }
        });
    };
}

// dx is dy for the input that won, and 0 for the others; argmax has the number of that input for each element.
Launch eltwise_max_backward(int64_t count, const std::vector<float*>& dxs, const float* dy, const uint8_t* argmax,
                            const std::vector<bool>& accumulate) {
    check(count, dxs.size(), accumulate.size(), 1);
    return [=, kernels = Kernels()] {
        compute_then_store(kernels, count, dxs, accumulate, [&](size_t i, float* dx, int64_t begin, int64_t size) {
            auto* winners = const_cast<uint8_t*>(argmax) + begin;  // read only
            kernels.eltwise.max_backward({dx, dy + begin, winners, static_cast<int32_t>(i), false}, 0, size);
        });
    };
}

LAYERMEM_KERNEL(eltwise_sum)
LAYERMEM_KERNEL(eltwise_product)
LAYERMEM_KERNEL(eltwise_max)
LAYERMEM_KERNEL(eltwise_sum_backward)
LAYERMEM_KERNEL(eltwise_product_backward)
LAYERMEM_KERNEL(eltwise_max_backward)

}  // namespace layermem::cpu
