// Eltwise: arrays of one shape combined element by element.  Any output may be any input of the same launch: results of
// a piece are complete before any of them is stored.
#pragma once
#include <vector>

#include "cpu/kernels/launch.h"
#include "cpu/microkernels/activation.h"
#include "cpu/microkernels/half.h"

namespace layermem::cpu {

// relu: negative sums become 0;  mask: of positive sums, as relu_forward writes it, or null
Launch eltwise_sum(int64_t count, float* y, std::vector<const float*> xs, std::vector<float> coefficients, bool relu,
                   const ReluMask& mask, Storage storage = Storage::fp32);
Launch eltwise_product(int64_t count, float* y, std::vector<const float*> xs);
Launch eltwise_max(int64_t count, float* y, std::vector<const float*> xs,
                   OrNull<uint8_t> argmax);  // the last of equals

// dxs: null for a gradient that is not wanted;  accumulate: one per dx.  A sum with relu gives its mask, or its y.
Launch eltwise_sum_backward(int64_t count, std::vector<float*> dxs, const float* dy, std::vector<float> coefficients,
                            std::vector<bool> accumulate, OrNull<const uint8_t> mask, OrNull<const float> y,
                            Storage storage = Storage::fp32);
Launch eltwise_product_backward(int64_t count, const std::vector<float*>& dxs, const std::vector<const float*>& xs,
                                const float* dy, const std::vector<bool>& accumulate);
Launch eltwise_max_backward(int64_t count, const std::vector<float*>& dxs, const float* dy, const uint8_t* argmax,
                            const std::vector<bool>& accumulate);

}  // namespace layermem::cpu
