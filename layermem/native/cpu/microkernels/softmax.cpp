// Scores of classes: softmax, its loss, accuracy.  Each kernel has three ways through memory, chosen by the axis:
//
//     inner > 1                a lane is a position; classes are `inner` floats apart
//     inner = 1, long rows     lanes are classes of one row
//     inner = 1, short rows    kLanes rows are transposed, and then treated as inner > 1
//
// Traffic: a row of the second case is read two or three times, from cache but for the first; in the other cases a
// register of positions is read once per pass over the classes.  Short rows are transposed because a reduction across
// lanes per row would cost more than the row itself.
//
// In every case exp is taken of x - max(x), so that nothing overflows and the largest term is 1.
#include "cpu/microkernels/softmax.h"

#include "cpu/isa/simd_math.h"
#include "cpu/microkernels/transpose_tile.h"

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

inline float max_of_row(const float* x, int64_t count) {
    V most = broadcast(-__builtin_inff());
    for_each_vector(0, count,
                    [&](int64_t i, auto n) { most = max(fill_tail(load(x + i, n), n, -__builtin_inff()), most); });
    return reduce_max(most);
}

// The sum of exp(x - top) over a row, and those numbers in `out` where it is not null.
inline float sum_exp(float* out, const float* x, int64_t count, float top) {
    V sum = zero();
    for_each_vector(0, count, [&](int64_t i, auto n) {
        const V e = exp(load(x + i, n) - broadcast(top));
        if (out) store(out + i, e, n);
        sum += clear_tail(e, n);
    });
    return reduce_add(sum);
}

// The class that a label names; -1: ignored, -2: out of range.
inline int64_t class_of(const SoftmaxArgs& args, int64_t position) {
    const int64_t label = label_class(args.labels.label[position]);
    if (args.labels.ignores && label == args.labels.ignore_label) return -1;
    return label >= 0 && label < args.axis.size ? label : -2;
}

// A bad label is only recorded: the driver reports it when all tasks are done.
// Adds one position: its label, as class_of returns it, and its loss.
inline void add_position(const SoftmaxArgs& args, int64_t position, int64_t label, float loss, LossPartial& sum) {
    if (label >= 0) {
        sum.loss += static_cast<double>(loss);
        ++sum.valid;
    } else if (label == -2) {
        ++sum.bad_labels;
        sum.bad_label = args.labels.label[position];
    }
}

// class_of for a register of positions; lanes from n on are -1, as if ignored.
template <class N>
inline I classes_of(const SoftmaxArgs& args, int64_t position, N n) {
    const I label = __builtin_convertvector(fill_tail(load(args.labels.label + position, n), n, 0.0f), I);
    const I is_class = (label >= 0) & (label < static_cast<int32_t>(args.axis.size));
    I result = (is_class & label) | (~is_class & -2);
    if (args.labels.ignores && args.labels.ignore_label == static_cast<int32_t>(args.labels.ignore_label)) {
        const I ignored = label == static_cast<int32_t>(args.labels.ignore_label);
        result = (ignored & -1) | (~ignored & result);
    }
    if (n < kLanes) {
        const I in_use = lanes_from_mask((1u << n) - 1);
        result = (in_use & result) | (~in_use & -1);
    }
    return result;
}

// Bit i: the condition holds in lane i.
inline uint32_t mask_where(I condition) { return positive_mask(select(condition, broadcast(1.0f), zero())); }

// add_position for a register of positions, with the labels of classes_of.
template <class N>
inline void add_positions(const SoftmaxArgs& args, int64_t position, I label, V loss, N n, LossPartial& sum) {
    const uint32_t bad = mask_where(label == -2);
    sum.loss += static_cast<double>(reduce_add(select(label >= 0, loss, zero())));
    sum.valid += __builtin_popcount(mask_where(label >= 0));
    for (int i = 0; bad && i < n; ++i)
        if (bad >> i & 1) add_position(args, position + i, -2, 0, sum);
}

// With inner > 1: body(offset of the first class, first position, n) for every register of neighbouring positions.
template <class Body>
LAYERMEM_INLINE void for_each_position(const Axis& s, int64_t begin, int64_t end, const Body& body) {
    for (int64_t o = begin; o < end; ++o)
        for_each_vector(0, s.inner, [&](int64_t i, auto n) __attribute__((always_inline)) {
            body(o * s.size * s.inner + i, o * s.inner + i, n);
        });
}

// The largest score of each position of a register; x: of the first class.
template <class N>
inline V max_across(const Axis& s, const float* x, N n) {
    V top = broadcast(-__builtin_inff());
    for (int64_t c = 0; c < s.size; ++c) top = max(load(x + c * s.inner, n), top);
    return top;
}

// The sum of exp(x - top) of each position of a register.
template <class N>
inline V sum_exp_across(const Axis& s, const float* x, V top, N n) {
    V sum = zero();
    for (int64_t c = 0; c < s.size; ++c) sum += exp(load(x + c * s.inner, n) - top);
    return sum;
}

// -- short rows -------------------------------------------------------------------------------------------------------

constexpr int64_t kShorterRow = 8;  // in place of kShortRow where there is no exp to save

inline bool is_row(const Axis& s, int64_t limit = kShortRow) { return s.inner == 1 && s.size > limit; }
inline bool is_short(const Axis& s, int64_t limit = kShortRow) {
    return s.inner == 1 && s.size <= limit && s.outer > 1;
}

// kLanes rows at a time, transposed: run(t) sees them as [1][size][rows], and what it writes to t.out is transposed
// back.
template <class Run>
inline void with_transposed(const SoftmaxArgs& args, int64_t begin, int64_t end, const Run& run) {
    const int64_t size = args.axis.size;
    float a[kShortRow * kLanes], dy[kShortRow * kLanes], out[kShortRow * kLanes];
    for (int64_t o = begin; o < end; o += kLanes) {
        const int64_t count = min(kLanes, end - o);
        SoftmaxArgs t = args;
        t.axis = {1, size, count};
        t.a = a;
        transpose_tile(a, count, args.a + o * size, size, count, size);
        if (args.dy) {
            transpose_tile(dy, count, args.dy + o * size, size, count, size);
            t.dy = dy;
        }
        if (args.out) t.out = out;
        if (args.accumulate) transpose_tile(out, count, args.out + o * size, size, count, size);
        if (args.labels.label) t.labels.label = args.labels.label + o;
        if (args.correct) t.correct = args.correct + o;
        run(t);
        if (args.out) transpose_tile(args.out + o * size, size, out, count, size, count);
    }
}

// -- kernels ----------------------------------------------------------------------------------------------------------

// y = exp(x - max) / sum of exp(x - max)
void softmax(const SoftmaxArgs& args, int64_t begin, int64_t end) {
    const Axis& s = args.axis;
    if (is_short(s)) return with_transposed(args, begin, end, [&](const SoftmaxArgs& t) { softmax(t, 0, 1); });
    if (is_row(s)) {
        for (int64_t o = begin; o < end; ++o) {
            const float* x = args.a + o * s.size;
            float* y = args.out + o * s.size;
            const V sum = broadcast(sum_exp(y, x, s.size, max_of_row(x, s.size)));
            for_each_vector(0, s.size, [&](int64_t i, auto n) { store(y + i, load(y + i, n) / sum, n); });
        }
        return;
    }
    for_each_position(s, begin, end, [&](int64_t at, int64_t, auto n) {
        const V top = max_across(s, args.a + at, n), sum = sum_exp_across(s, args.a + at, top, n);
        for (int64_t c = 0; c < s.size; ++c)
            store(args.out + at + c * s.inner, exp(load(args.a + at + c * s.inner, n) - top) / sum, n);
    });
}

// dx = y (dy - sum of y dy); args.a is y
void softmax_backward(const SoftmaxArgs& args, int64_t begin, int64_t end) {
    const Axis& s = args.axis;
    if (is_short(s, kShorterRow))
        return with_transposed(args, begin, end, [&](const SoftmaxArgs& t) { softmax_backward(t, 0, 1); });
    const auto gradient = [&](int64_t at, V dot, auto n) {
        const V dx = load(args.a + at, n) * (load(args.dy + at, n) - dot);
        store(args.out + at, args.accumulate ? load(args.out + at, n) + dx : dx, n);
    };
    if (is_row(s, kShorterRow)) {
        for (int64_t o = begin; o < end; ++o) {
            V sum = zero();
            const int64_t row = o * s.size;
            for_each_vector(0, s.size,
                            [&](int64_t i, auto n) { sum += load(args.a + row + i, n) * load(args.dy + row + i, n); });
            const V dot = broadcast(reduce_add(sum));
            for_each_vector(0, s.size, [&](int64_t i, auto n) { gradient(row + i, dot, n); });
        }
        return;
    }
    for_each_position(s, begin, end, [&](int64_t at, int64_t, auto n) {
        V dot = zero();
        for (int64_t c = 0; c < s.size; ++c)
            dot += load(args.a + at + c * s.inner, n) * load(args.dy + at + c * s.inner, n);
        for (int64_t c = 0; c < s.size; ++c) gradient(at + c * s.inner, dot, n);
    });
}

constexpr float kLargestLoss = 87.33654475f;  // -log(FLT_MIN): Caffe takes no share below FLT_MIN

inline V limit_loss(V loss) {  // a NaN stays
    return select(loss > broadcast(kLargestLoss), broadcast(kLargestLoss), loss);
}

// loss = log(sum of exp(x - max)) - (x[label] - max): -log softmax(x)[label] without the division, which may round to
// 0, and at most kLargestLoss.  The softmax goes to out where it is not null.
void softmax_loss(const SoftmaxArgs& args, int64_t begin, int64_t end, LossPartial& sum) {
    const Axis& s = args.axis;
    if (is_short(s))
        return with_transposed(args, begin, end, [&](const SoftmaxArgs& t) { softmax_loss(t, 0, 1, sum); });
    if (is_row(s)) {
        for (int64_t o = begin; o < end; ++o) {
            const float *x = args.a + o * s.size, top = max_of_row(x, s.size);
            const int64_t label = class_of(args, o);
            const float own = label >= 0 ? x[label] : 0;  // before y is written, which may be x
            float* y = args.out ? args.out + o * s.size : nullptr;
            const float exps = sum_exp(y, x, s.size, top);
            add_position(args, o, label, limit_loss(log(broadcast(exps)) - broadcast(own - top))[0], sum);
            if (y)
                for_each_vector(0, s.size,
                                [&](int64_t i, auto n) { store(y + i, load(y + i, n) / broadcast(exps), n); });
        }
        return;
    }
    for_each_position(s, begin, end, [&](int64_t at, int64_t position, auto n) {
        const V top = max_across(s, args.a + at, n);
        const I label = classes_of(args, position, n);
        V exps = zero(), own = zero();
        for (int64_t c = 0; c < s.size; ++c) {
            const V x = load(args.a + at + c * s.inner, n);
            exps += exp(x - top);
            own = select(label == static_cast<int32_t>(c), x, own);
        }
        add_positions(args, position, label, limit_loss(log(exps) - (own - top)), n, sum);
        if (args.out)
            for (int64_t c = 0; c < s.size; ++c)
                store(args.out + at + c * s.inner, exp(load(args.a + at + c * s.inner, n) - top) / exps, n);
    });
}

// dx = scale (softmax(x) - [class is the label]), 0 where the label is ignored; the softmax is computed again from x
void softmax_loss_backward(const SoftmaxArgs& args, int64_t begin, int64_t end) {
    const Axis& s = args.axis;
    if (is_short(s))
        return with_transposed(args, begin, end, [&](const SoftmaxArgs& t) { softmax_loss_backward(t, 0, 1); });
    const auto gradient = [&](int64_t at, V p, auto n) {
        store(args.out + at, args.accumulate ? load(args.out + at, n) + p : p, n);
    };
    if (is_row(s)) {
        for (int64_t o = begin; o < end; ++o) {
            const float* x = args.a + o * s.size;
            const float top = max_of_row(x, s.size);
            const int64_t label = class_of(args, o), row = o * s.size;
            const float share = label < 0 ? 0 : args.scale / sum_exp(nullptr, x, s.size, top);
            // Read before dx is written, which may be x; the element of the label is written again at the end.
            const float before = args.accumulate && label >= 0 ? args.out[row + label] : 0;
            const float own = label >= 0 ? x[label] : 0;
            for_each_vector(0, s.size, [&](int64_t i, auto n) {
                gradient(row + i, label < 0 ? zero() : exp(load(x + i, n) - broadcast(top)) * broadcast(share), n);
            });
            if (label >= 0) args.out[row + label] = before + (exp(broadcast(own - top))[0] * share - args.scale);
        }
        return;
    }
    for_each_position(s, begin, end, [&](int64_t at, int64_t position, auto n) {
        const V top = max_across(s, args.a + at, n), sum = sum_exp_across(s, args.a + at, top, n);
        const I label = classes_of(args, position, n);
        const V share = select(label < 0, zero(), broadcast(args.scale) / sum), scale = broadcast(args.scale);
        for (int64_t c = 0; c < s.size; ++c) {
            const V p = exp(load(args.a + at + c * s.inner, n) - top) * share;
            gradient(at + c * s.inner, select(label == static_cast<int32_t>(c), p - scale, p), n);
        }
    });
}

// A position is correct if at most top_k scores, its label's included, are at least the label's.  Comparisons with a
// NaN are false: such a score does not count, and a label whose own score is NaN is not correct.
void accuracy(const SoftmaxArgs& args, int64_t begin, int64_t end, LossPartial& sum) {
    const Axis& s = args.axis;
    if (is_short(s)) return with_transposed(args, begin, end, [&](const SoftmaxArgs& t) { accuracy(t, 0, 1, sum); });
    const auto decide = [&](int64_t position, int64_t label, float own, float at_least) {
        const bool correct = label >= 0 && own == own && static_cast<int64_t>(at_least) <= args.top_k;
        add_position(args, position, label, correct ? 1.0f : 0.0f, sum);
        if (args.correct) args.correct[position] = correct;
    };
    const auto counts = [](V x, V own) { return select(x >= own, broadcast(1.0f), zero()); };
    if (is_row(s)) {
        for (int64_t o = begin; o < end; ++o) {
            const float* x = args.a + o * s.size;
            const int64_t label = class_of(args, o);
            const float own = label >= 0 ? x[label] : 0;
            V at_least = zero();
            for_each_vector(0, s.size, [&](int64_t i, auto n) {
                at_least += clear_tail(counts(load(x + i, n), broadcast(own)), n);
            });
            decide(o, label, own, reduce_add(at_least));
        }
        return;
    }
    for_each_position(s, begin, end, [&](int64_t at, int64_t position, auto n) {
        const I label = classes_of(args, position, n);
        V own = zero(), at_least = zero();
        for (int64_t c = 0; c < s.size; ++c)
            own = select(label == static_cast<int32_t>(c), load(args.a + at + c * s.inner, n), own);
        for (int64_t c = 0; c < s.size; ++c) at_least += counts(load(args.a + at + c * s.inner, n), own);
        const I correct = (label >= 0) & (own == own) & (at_least <= broadcast(static_cast<float>(args.top_k)));
        add_positions(args, position, label, select(correct, broadcast(1.0f), zero()), n, sum);
        if (args.correct) store_bytes(args.correct + position, correct & 1, n);
    });
}

}  // namespace

const SoftmaxKernels softmax_kernels = {softmax, softmax_backward, softmax_loss, softmax_loss_backward, accuracy};

}  // namespace layermem::cpu::LAYERMEM_ISA
