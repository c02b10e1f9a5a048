// Kernels that walk a flat array: activations, ReLU with its mask, dropout, updates, the norm of gradients.
#pragma once
#include <vector>

#include "launch.h"
#include "map.h"

namespace layermem::cpu {

struct Unit;

using SteppedLaunch = std::function<void(uint64_t step)>;
using RatedLaunch = std::function<void(float rate, float gain)>;

Launch map_elements(int64_t count, const Map&);
Launch relu_forward(int64_t count, const Relu&);
Launch relu_backward(int64_t count, const Relu&);
void write_mask(const Unit&, int64_t count, const float* y, uint8_t* mask);  // of a y that is rectified already
Launch clip_forward(int64_t count, const Clip&);
SteppedLaunch dropout(int64_t count, float* out, const float* in, double ratio, uint64_t seed, uint32_t stream,
                      bool accumulate);

RatedLaunch update(int64_t count, const Update&);

// *out = sum of x^2 over all arrays, in double, rounded once
Launch sum_of_squares(float* out, const std::vector<const float*>& xs, const std::vector<int64_t>& counts, bool root);

}  // namespace layermem::cpu
