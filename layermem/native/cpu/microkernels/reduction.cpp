// Sums along an axis, their gradients, and searches for the largest element.
#include "cpu/microkernels/reduction.h"

#include "cpu/isa/simd_math.h"
#include "cpu/microkernels/transpose_tile.h"

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

// run(f, gradient): f(x) as the sum takes it, and gradient(x, dy) = f'(x) dy.
template <class F>
LAYERMEM_INLINE void with_term(Term term, const F& run) {
    switch (term) {
        case Term::plain: return run([](V x) { return x; }, [](V, V dy) { return dy; });
        case Term::absolute:
            return run([](V x) { return abs(x); },
                       [](V x, V dy) { return select(x > zero(), dy, select(x < zero(), -dy, zero())); });
        case Term::square: return run([](V x) { return x * x; }, [](V x, V dy) { return dy * (x + x); });
    }
}

// The sum of term(x) over [begin, end) of one row: blocks of 1024 in float, their totals in double.  In a block each
// lane adds at most 1024 / kLanes terms before reduce_add.
double reduce_row(const ReduceArgs& args, const float* x, int64_t begin, int64_t end) {
    double sum = 0;
    with_term(args.term, [&](const auto& f, const auto&) {
        for (int64_t block = begin; block < end; block += 1024) {
            V part = zero();
            for_each_vector(block, min(end, block + 1024), [&](int64_t i, auto n) { part += f(load(x + i, n)); });
            sum += static_cast<double>(reduce_add(part));
        }
    });
    return sum;
}

// Columns [begin, end) of block `outer`, inner > 1: the sums of 64 elements of the axis each are added, which
// keeps the rounding error of long sums small.
void reduce_columns(const ReduceArgs& args, int64_t outer, int64_t begin, int64_t end) {
    const Axis& s = args.axis;
    const float* x = args.x + outer * s.size * s.inner;
    float* y = args.out + outer * s.inner;
    with_term(args.term, [&](const auto& f, const auto&) {
        for_each_vector(begin, end, [&](int64_t i, auto n) __attribute__((always_inline)) {
            V sum = zero();
            for (int64_t block = 0; block < s.size; block += 64) {
                V part = zero();
                for (int64_t k = block; k < min(s.size, block + 64); ++k) part += f(load(x + k * s.inner + i, n));
                sum += part;
            }
            sum = broadcast(args.factor) * sum;
            store(y + i, args.accumulate ? load(y + i, n) + sum : sum, n);
        });
    });
}

// Lines [begin, end) of outer * size: each gets the gradient of its block.
void reduce_backward(const ReduceArgs& args, int64_t begin, int64_t end) {
    const Axis& s = args.axis;
    with_term(args.term, [&](const auto&, const auto& slope) {
        const auto write = [&](int64_t at, V dy, auto n) __attribute__((always_inline)) {
            const V dx = slope(args.x ? load(args.x + at, n) : zero(), broadcast(args.factor) * dy);
            store(args.out + at, args.accumulate ? load(args.out + at, n) + dx : dx, n);
        };
        if (s.inner == 1) {  // a line is one element: take all elements of a row together
            for (int64_t at = begin; at < end;) {
                const int64_t o = at / s.size, row_end = min(end, (o + 1) * s.size);
                const V dy = broadcast(args.dy[o]);
                for_each_vector(at, row_end,
                                [&](int64_t i, auto n) __attribute__((always_inline)) { write(i, dy, n); });
                at = row_end;
            }
            return;
        }
        for (int64_t line = begin; line < end; ++line)
            for_each_vector(0, s.inner, [&](int64_t i, auto n) __attribute__((always_inline)) {
                write(line * s.inner + i, load(args.dy + line / s.size * s.inner + i, n), n);
            });
    });
}

// out = the sums of kGroup registers of columns over `rows` rows, or += where `more`.
template <int kGroup, class N>
LAYERMEM_INLINE void add_columns(float* out, const float* in, int64_t pitch, int64_t rows, bool more, N n,
                                 VectorGroup<kGroup>) {
    V sum[kGroup];
#pragma GCC unroll 4
    for (int i = 0; i < kGroup; ++i) sum[i] = zero();
    for (int64_t r = 0; r < rows; ++r)
#pragma GCC unroll 4
        for (int i = 0; i < kGroup; ++i) sum[i] += load(in + r * pitch + i * kLanes, n);
#pragma GCC unroll 4
    for (int i = 0; i < kGroup; ++i) store(out + i * kLanes, more ? load(out + i * kLanes, n) + sum[i] : sum[i], n);
}

// out (+)= the sum of `rows` rows of `in`, column by column, in blocks of kSumBlockRows whose sums are added
void sum_rows(float* out, const float* in, int64_t pitch, int64_t rows, int64_t columns, bool accumulate) {
    for (int64_t block = 0; block < rows; block += kSumBlockRows) {
        const int64_t block_end = min(rows, block + kSumBlockRows);
        const bool more = block > 0 || accumulate;
        for_each_vector_group(0, columns, [&](int64_t c, auto n, auto group) __attribute__((always_inline)) {
            add_columns(out + c, in + block * pitch + c, pitch, block_end - block, more, n, group);
        });
    }
}

// out (+)= the sum of `rows` rows of `in`, column by column, one row after the other
void add_rows(float* out, const float* in, int64_t pitch, int64_t rows, int64_t columns, bool accumulate) {
    for_each_vector(0, columns, [&](int64_t c, auto n) {
        V sum = accumulate ? load(out + c, n) : zero();
        for (int64_t r = 0; r < rows; ++r) sum += load(in + r * pitch + c, n);
        store(out + c, sum, n);
    });
}

// The first register from `begin` on that may hold an element for the heap; most registers of a long row do not.  The
// last, incomplete register is left to the caller.  Written as "not below", so that a NaN stops the search too.
int64_t find_not_below(const float* x, int64_t begin, int64_t end, float floor) {
    for (; begin + kLanes <= end; begin += kLanes)
        if (positive_mask(select(load(x + begin) < broadcast(floor), zero(), broadcast(1.0f)))) return begin;
    return begin;
}

// The rows are transposed, so that a lane is a row: no sum or maximum across lanes.  Of equal elements the last wins,
// as in Caffe.  False if a row has a NaN, which needs the order of `before` in kernels/reduction.cpp.
bool max_of_short_rows(float* index, float* value, const float* x, int64_t rows, int64_t size) {
    float tile[kShortRow * kLanes] = {};
    transpose_tile(tile, kLanes, x, size, rows, size);
    const int n = static_cast<int>(rows);
    V best = load_up_to(tile, n), at = zero();
    I is_number = best == best;
    for (int64_t i = 1; i < size; ++i) {
        const V v = load_up_to(tile + i * kLanes, n);
        const I later = v >= best;
        best = select(later, v, best);
        at = select(later, broadcast(static_cast<float>(i)), at);
        is_number &= v == v;
    }
    store(index, at);
    store(value, best);
    return positive_mask(select(is_number, zero(), broadcast(1.0f))) == 0;
}

}  // namespace

const ReductionKernels reduction_kernels = {kLanes,   reduce_row, reduce_columns, reduce_backward,
                                            sum_rows, add_rows,   find_not_below, max_of_short_rows};

}  // namespace layermem::cpu::LAYERMEM_ISA
