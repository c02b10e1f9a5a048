// Sums along one axis and their gradients; sums of rows; searches for the largest element of a row.
#pragma once
#include <cstdint>

#include "cpu/isa/isa.h"
#include "cpu/microkernels/axis.h"

namespace layermem::cpu {

enum class Term { plain, absolute, square };  // x, |x|, x^2

struct ReduceArgs {
    Axis axis;
    Term term;
    float* out;       // y [outer][inner];  backward: dx [outer][size][inner]
    const float* x;   // backward: null where the term is plain
    const float* dy;  // backward only
    float factor;
    bool accumulate;
};

constexpr int64_t kSumBlockRows = 64;  // rows whose sum is taken before it is added to that of the others

struct ReductionKernels {
    int lanes;  // floats of a register

    // The sum of term(x) over [begin, end) of one row; without `factor`.  inner = 1.
    double (*reduce_row)(const ReduceArgs&, const float* row, int64_t begin, int64_t end);
    // out[outer][begin, end) (+)= factor * sum over the axis.  inner > 1.
    void (*reduce_columns)(const ReduceArgs&, int64_t outer, int64_t begin, int64_t end);
    void (*reduce_backward)(const ReduceArgs&, int64_t begin, int64_t end);  // lines of [outer * size][inner]

    // out[0, columns) (+)= the sum of `rows` rows of `in`, `pitch` floats apart
    void (*sum_rows)(float* out, const float* in, int64_t pitch, int64_t rows, int64_t columns, bool accumulate);
    // out (+)= the rows of one block of sum_rows, or of a piece of it, one row after the other
    void (*add_rows)(float* out, const float* in, int64_t pitch, int64_t rows, int64_t columns, bool accumulate);

    // The first index of [begin, end) whose element is not below `floor`, rounded down to a register; `end` for none.
    int64_t (*find_not_below)(const float* x, int64_t begin, int64_t end, float floor);
    // The index of the largest element, and the element, of each of `rows` <= lanes rows of `size` <= kShortRow elements; of equal
    // ones the last.  false if a row holds a NaN: then index and value are not to be used.
    bool (*max_of_short_rows)(float* index, float* value, const float* x, int64_t rows, int64_t size);
};
LAYERMEM_KERNEL_TABLE(ReductionKernels, reduction_kernels)

}  // namespace layermem::cpu
