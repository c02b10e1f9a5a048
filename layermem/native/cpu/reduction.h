// Many elements to few along one axis of [outer][size][inner], and their gradient back: Reduction, Tile, ArgMax.
#pragma once
#include <cstdint>

#include "axis.h"
#include "launch.h"

namespace layermem::cpu {

enum class Term { plain, absolute, square };  // x, |x|, x^2

struct ReduceArgs {
    Axis axis;
    Term term;
    float* out;       // y, or dx
    const float* x;   // null for the gradient of a plain sum
    const float* dy;  // of the gradient only
    float factor;
    bool accumulate;
};

// y [outer][inner] (+)= factor * sum over size of term(x)
int64_t reduce_workspace(const Axis&);
Launch reduce(const Axis&, Term, float* y, const float* x, float factor, bool accumulate, void* scratch);
// dx (+)= factor * dy * the term's slope at x
Launch reduce_backward(const Axis&, Term, float* dx, const float* x, const float* dy, float factor, bool accumulate);

// The largest `count` of each row of x [rows][size], falling; of equals the last first, a NaN before any number.
// place or value [rows / inner][count][inner], null where not wanted; they may lie on one array, `pitch` floats apart.
int64_t largest_workspace(int64_t count);
struct Largest {
    int64_t rows, size, count, inner;
    int64_t pitch;  // floats between what belongs to one block of rows and to the next
    float *place, *value;
    const float* x;
};
Launch largest(const Largest&, void* scratch);

}  // namespace layermem::cpu
