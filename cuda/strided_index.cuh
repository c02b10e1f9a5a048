// Places of a blob of up to four axes, counted through other axes than its own.
#pragma once
#include "common.cuh"

namespace lm {

// Number i, counted through axes of sizes (s0, s1, s2, s3) with the last one fastest, goes to the sum of index x
// stride. s0 is not needed; an axis of stride 0 does not move.
struct StridedIndex {
    Divider s1, s2, s3;
    int stride0, stride1, stride2, stride3;
};

LM_FN int strided_offset(unsigned i, const StridedIndex& along) {
    const int at2 = divide(i, along.s3), at1 = divide(at2, along.s2), at0 = divide(at1, along.s1);
    const int i3 = i - at2 * along.s3.divisor, i2 = at2 - at1 * along.s2.divisor, i1 = at1 - at0 * along.s1.divisor;
    return at0 * along.stride0 + i1 * along.stride1 + i2 * along.stride2 + i3 * along.stride3;
}

}  // namespace lm
