// Updates of parameters by the solver's rule, and the norm of gradients that clipping needs.
#pragma once
#include <string>
#include <vector>

#include "cpu/kernels/launch.h"
#include "cpu/microkernels/update.h"

namespace layermem::cpu {

// std::invalid_argument unless args has the optimizer state of its rule: h0, and h1 for AdaDelta, Adam and AdamW only; an
// Accumulate has none
void check_update(const Update& args);

// w, h0 and h1 from dw.  rate, gain and shrink of `args` are those that the launch is called with.
UpdateLaunch update(int64_t count, const Update& args);

// *out = sum of x^2 over all arrays [or its root], summed in double and rounded once
Launch sum_of_squares(const std::vector<int64_t>& counts, float* out, const std::vector<const float*>& xs, bool root);

// out[row] = sum of x^2 over the elements of the row, alike wherever the row lies
Launch row_squares(int64_t rows, int64_t elements, float* out, const float* x);

// *out = the root of the sum of all squares, one after the other in double
Launch norm_of_rows(const std::vector<int64_t>& counts, float* out, const std::vector<const float*>& squares);

}  // namespace layermem::cpu
