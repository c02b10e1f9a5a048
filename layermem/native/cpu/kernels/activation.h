// Activations: one function of each element, and ReLU and Clip with a bit mask from which backward is computed.
//
// Any output may be any input of the same launch.  Masks have one bit per element, see microkernels/activation.h.
#pragma once
#include <string>

#include "cpu/kernels/launch.h"
#include "cpu/microkernels/activation.h"
#include "cpu/microkernels/half.h"

namespace layermem::cpu {

// kind: a name of pointwise_kinds.h;  a, b: null where the function takes less than one or two
Launch pointwise(const std::string& kind, int64_t count, float* out, OrNull<const float> a, OrNull<const float> b,
                 float alpha = 0, float beta = 0, float gamma = 0, bool accumulate = false,
                 Storage storage = Storage::fp32);
Launch relu_forward(int64_t count, float* y, const float* x, const ReluMask& mask, float slope = 0,
                    Storage storage = Storage::fp32);
Launch relu_backward(int64_t count, float* dx, const float* dy, uint8_t* mask, float slope = 0, bool accumulate = false,
                     Storage storage = Storage::fp32);
Launch clip_forward(int64_t count, float* y, const float* x, uint8_t* mask, float lowest, float highest,
                    Storage storage = Storage::fp32);  // its backward is relu_backward with slope 0

// A mask from element i on, a multiple of 8.  Null stays null.
inline uint8_t* mask_from(uint8_t* bits, int64_t i) { return bits ? bits + i / 8 : nullptr; }
inline ReluMask mask_from(const ReluMask& mask, int64_t i) { return {mask_from(mask.bits, i), mask.largest_zero}; }

// The mask of a y that already went through a ReLU; called inside the launch of an op with a ReLU epilogue.
void write_mask(const ActivationKernels& kernels, int64_t count, const float* y, const ReluMask& mask,
                Storage storage = Storage::fp32);

}  // namespace layermem::cpu
