// Sums along one axis, sums of rows (bias gradients), and the k largest elements of rows.
#pragma once
#include <string>

#include "cpu/kernels/launch.h"
#include "cpu/microkernels/half.h"
#include "cpu/microkernels/reduction.h"

namespace layermem::cpu {

// y [outer][inner] (+)= factor * sum over size of term(x)
int64_t reduce_workspace_bytes(const Axis& axis);
Launch reduce(const Axis& axis, Term term, float* y, const float* x, float factor, bool accumulate,
              OrNull<void> workspace);
// dx (+)= factor * dy * term'(x)
Launch reduce_backward(const Axis& axis, Term term, float* dx, OrNull<const float> x, const float* dy, float factor,
                       bool accumulate);

// out[c] (+)= the sum of in[0..rows)[c]: a bias gradient.
//
// Slices of a batch, in rising order, carry sums: the first slice begins them, the last one computes `out` from them;
// the others need no `out`.  Where a whole batch takes no workspace it adds blocks of rows to `out` itself: a first
// slice that is to accumulate then finds `out` in the first floats of what it carries.
int64_t column_sums_workspace_bytes(int64_t rows, int64_t columns);
int64_t column_sums_carry_bytes(int64_t each, int64_t rows, int64_t columns);  // rows: of a slice, of the whole batch
Launch column_sums(int64_t rows, int64_t columns, float* out, const float* x, bool accumulate, OrNull<void> workspace,
                   int64_t first = 0, int64_t of = 0, void* carry = nullptr, Storage storage = Storage::fp32);

// The k largest elements of each row of x [rows][size], in descending order; among equal elements the last comes first,
// and NaN before any number.  index and value are [rows / inner][k][inner], null where not wanted; they may share one
// array.
struct TopK {
    int64_t rows, size, k, inner;
    int64_t pitch = 0;  // floats from one [k][inner] block of the outputs to the next; 0: k inner
    OrNull<float> index, value;
    const float* x;
};
int64_t top_k_workspace_bytes(int64_t k);
Launch top_k(const TopK& args, void* workspace);

}  // namespace layermem::cpu
