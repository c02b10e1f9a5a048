// Means along an axis, and what is left without them.
//
// Rounding: 128 rows are added in float, and then the sums of such runs, so that the error does not grow with the length
// of the axis.
#include "cpu/microkernels/mvn.h"

#include "cpu/isa/simd.h"
#include "cpu/isa/simd_math.h"

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

constexpr int64_t kColumns = 64;  // of a strip
constexpr int64_t kRun = 128;     // rows that are added before their sum is

struct Strip {  // a number for each column of a strip
    V at[kColumns / kLanes];
};

// The sum of term(r, j, n), a register of n columns from j on, over the rows.
template <class Term>
LAYERMEM_INLINE Strip sum_rows(int64_t rows, int64_t width, const Term& term) {
    Strip total{};
    for (int64_t first = 0; first < rows; first += kRun) {
        Strip part{};
        const int64_t last = min(rows, first + kRun);
        for (int64_t r = first; r < last; ++r)
            for_each_vector(0, width, [&](int64_t j, auto n) { part.at[j / kLanes] += term(r, j, n); });
        for (int k = 0; k < kColumns / kLanes; ++k) total.at[k] += part.at[k];
    }
    return total;
}

// Columns of a block: each has its mean.  Offsets are in floats from the first element of the strip.
struct Columns {
    int64_t size, pitch, width;

    template <class Term>
    LAYERMEM_INLINE Strip mean(const Term& term) const {
        Strip sum = sum_rows(size, width, [&](int64_t r, int64_t j, auto n) {
            return term(r * pitch + j, n, static_cast<int>(j / kLanes));
        });
        for (V& each : sum.at) each = each / broadcast(static_cast<float>(size));
        return sum;
    }

    template <class Body>
    LAYERMEM_INLINE void for_each(const Body& body) const {
        for (int64_t r = 0; r < size; ++r)
            for_each_vector(0, width, [&](int64_t j, auto n) { body(r * pitch + j, n, static_cast<int>(j / kLanes)); });
    }
};

// A block of contiguous elements, with one mean.  It is summed as rows of kColumns, and what is left one by one.
struct Line {
    int64_t size;

    template <class Term>
    LAYERMEM_INLINE Strip mean(const Term& term) const {
        const int64_t rows = size / kColumns;
        const Strip sums =
            sum_rows(rows, kColumns, [&](int64_t r, int64_t j, auto n) { return term(r * kColumns + j, n, 0); });
        float sum = 0;
        for (const V& each : sums.at) sum += reduce_add(each);
        for (int64_t i = rows * kColumns; i < size; ++i) sum += term(i, 1, 0)[0];
        return {{broadcast(sum / static_cast<float>(size))}};
    }

    template <class Body>
    LAYERMEM_INLINE void for_each(const Body& body) const {
        for_each_vector(0, size, [&](int64_t i, auto n) { body(i, n, 0); });
    }
};

// factor: [width], written where it is not null
template <class Shape>
LAYERMEM_INLINE void normalize(const Shape& shape, const MvnArgs& args, float* y, const float* x, float* factors,
                               int64_t width) {
    const Strip mean = shape.mean([&](int64_t i, auto n, int) { return load(x + i, n); });
    if (!args.normalize) {
        shape.for_each([&](int64_t i, auto n, int k) { store(y + i, load(x + i, n) - mean.at[k], n); });
        return;
    }
    Strip factor = shape.mean([&](int64_t i, auto n, int k) {
        const V centered = load(x + i, n) - mean.at[k];
        return centered * centered;
    });
    for (V& each : factor.at) each = broadcast(1.0f) / (sqrt(each) + broadcast(args.eps));
    if (factors) for_each_vector(0, width, [&](int64_t j, auto n) { store(factors + j, factor.at[j / kLanes], n); });
    shape.for_each([&](int64_t i, auto n, int k) { store(y + i, (load(x + i, n) - mean.at[k]) * factor.at[k], n); });
}

void mvn(const MvnArgs& args, int64_t block, int64_t begin, int64_t end) {
    const Axis& axis = args.axis;
    const int64_t first = block * axis.size * axis.inner + begin, width = end - begin;
    float* factors = args.inv_std ? args.inv_std + block * axis.inner + begin : nullptr;
    if (axis.inner == 1)
        normalize(Line{axis.size}, args, args.y + first, args.x + first, factors, 1);
    else
        normalize(Columns{axis.size, axis.inner, width}, args, args.y + first, args.x + first, factors, width);
}

template <class Shape>
LAYERMEM_INLINE void differentiate(const Shape& shape, const MvnBackwardArgs& args, int64_t first, const float* factors,
                                   int64_t width) {
    float* dx = args.dx + first;
    const float *dy = args.dy + first, *y = args.y ? args.y + first : nullptr;
    const auto write = [&](int64_t i, auto n, V value) {
        store(dx + i, args.accumulate ? load(dx + i, n) + value : value, n);
    };
    const Strip mean = shape.mean([&](int64_t i, auto n, int) { return load(dy + i, n); });
    if (!y) {
        shape.for_each([&](int64_t i, auto n, int k) { write(i, n, load(dy + i, n) - mean.at[k]); });
        return;
    }
    const Strip product = shape.mean([&](int64_t i, auto n, int) { return load(y + i, n) * load(dy + i, n); });
    Strip factor{};
    for_each_vector(0, width, [&](int64_t j, auto n) { factor.at[j / kLanes] = load(factors + j, n); });
    if (width == 1) factor.at[0] = broadcast(factors[0]);
    shape.for_each([&](int64_t i, auto n, int k) {
        write(i, n, (load(dy + i, n) - mean.at[k] - load(y + i, n) * product.at[k]) * factor.at[k]);
    });
}

void mvn_backward(const MvnBackwardArgs& args, int64_t block, int64_t begin, int64_t end) {
    const Axis& axis = args.axis;
    const int64_t first = block * axis.size * axis.inner + begin, width = end - begin;
    const float* factors = args.inv_std ? args.inv_std + block * axis.inner + begin : nullptr;
    if (axis.inner == 1)
        differentiate(Line{axis.size}, args, first, factors, 1);
    else
        differentiate(Columns{axis.size, axis.inner, width}, args, first, factors, width);
}

}  // namespace

const MvnKernels mvn_kernels = {mvn, mvn_backward};

}  // namespace layermem::cpu::LAYERMEM_ISA
