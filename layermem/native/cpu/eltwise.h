// Eltwise: arrays of one shape combined element by element.  Any output may lie on any input of the same op: what a
// stretch of elements gives is complete before any of it is stored.
#pragma once
#include <vector>

#include "launch.h"

namespace layermem::cpu {

// relu: the sum is rectified; mask: as relu_forward writes it, or null
Launch eltwise_sum(int64_t count, float* y, std::vector<const float*> xs, std::vector<float> coefficients, bool relu,
                   uint8_t* mask);
Launch eltwise_product(int64_t count, float* y, std::vector<const float*> xs);
Launch eltwise_max(int64_t count, float* y, std::vector<const float*> xs, uint8_t* winner);  // last of equals

// dxs: null where nobody wants the gradient;  accumulate: one for each;  of a rectified sum: its mask, or y itself
Launch eltwise_sum_backward(int64_t count, std::vector<float*> dxs, const float* dy, std::vector<float> coefficients,
                            std::vector<bool> accumulate, const uint8_t* mask, const float* y);
Launch eltwise_product_backward(int64_t count, std::vector<float*> dxs, std::vector<const float*> xs, const float* dy,
                                std::vector<bool> accumulate);
Launch eltwise_max_backward(int64_t count, std::vector<float*> dxs, const float* dy, const uint8_t* winner,
                            std::vector<bool> accumulate);

}  // namespace layermem::cpu
