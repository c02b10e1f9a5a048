// InfogainLoss.  Where the classes of a position are neighbours, lanes are classes; else lanes are positions, whose
// rows of the matrix are transposed.
#include "cpu/microkernels/softmax_infogain.h"

#include "cpu/isa/simd_math.h"
#include "cpu/microkernels/transpose_tile.h"

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

constexpr float kSmallestShare = 1e-20f;  // Caffe's kLOG_THRESHOLD

// ln max(p, 1e-20); a NaN stays.
inline V log_share(V p) { return log(select(p < broadcast(kSmallestShare), broadcast(kSmallestShare), p)); }

// The class that a label names; -1: it does not count, -2: out of range.
inline int64_t class_of(const InfogainArgs& args, int64_t position) {
    const int64_t label = label_class(args.labels.label[position]);
    if (args.labels.ignores && label == args.labels.ignore_label) return -1;
    return label >= 0 && label < args.axis.size ? label : -2;
}

// Counts the label of a position, as class_of returns it.
inline void count_label(const InfogainArgs& args, int64_t position, int64_t label, LossPartial& sum) {
    sum.valid += label >= 0;
    if (label != -2) return;
    ++sum.bad_labels;
    sum.bad_label = static_cast<double>(args.labels.label[position]);
}

// body(first position, offset of its first class, n) for registers of positions with one outer index.
template <class Body>
LAYERMEM_INLINE void for_each_position(const Axis& s, int64_t begin, int64_t end, const Body& body) {
    for (int64_t position = begin; position < end;) {
        const int64_t o = position / s.inner, first = o * s.inner, last = min(end, first + s.inner);
        for_each_vector(position - first, last - first, [&](int64_t i, auto n) __attribute__((always_inline)) {
            body(first + i, o * s.size * s.inner + i, n);
        });
        position = last;
    }
}

// Rows of the matrix for a register of positions.
struct Rows {
    int64_t label[kLanes];     // of lanes in use, as class_of returns them
    const float* row[kLanes];  // of the matrix, where the label counts
    I counts;

    template <class N>
    Rows(const InfogainArgs& args, int64_t position, N n) : counts{} {
        for (int i = 0; i < n; ++i) {
            label[i] = class_of(args, position + i);
            row[i] = label[i] >= 0 ? args.matrix + label[i] * args.axis.size : nullptr;
            counts[i] = label[i] >= 0 ? -1 : 0;
        }
    }

    // body(c, what class c counts in each lane) for all classes: parts of the rows are transposed.
    template <class Body>
    LAYERMEM_INLINE void for_each_class(int64_t size, const Body& body) const {
        constexpr int64_t kClasses = 16;  // of a part
        float part[kLanes * kClasses] = {}, columns[kClasses * kLanes];
        for (int64_t first = 0; first < size; first += kClasses) {
            const int64_t count = min(kClasses, size - first);
            for (int i = 0; i < kLanes; ++i)
                if (counts[i]) __builtin_memcpy(part + i * kClasses, row[i] + first, static_cast<size_t>(count) * 4);
            for (int64_t i = 0; i < kLanes; i += 4)
                for (int64_t c = 0; c < kClasses; c += 4)
                    transpose_4x4(columns + c * kLanes + i, kLanes, part + i * kClasses + c, kClasses);
            for (int64_t c = 0; c < count; ++c) body(first + c, load(columns + c * kLanes));
        }
    }
};

void forward(const InfogainArgs& args, int64_t begin, int64_t end, LossPartial& sum) {
    const Axis& s = args.axis;
    if (s.inner == 1) {
        for (int64_t o = begin; o < end; ++o) {
            const int64_t label = class_of(args, o);
            count_label(args, o, label, sum);
            if (label < 0) continue;
            const float *row = args.matrix + label * s.size, *p = args.p + o * s.size;
            V total = zero();
            for_each_vector(0, s.size, [&](int64_t c, auto n) {
                total += load(row + c, n) * log_share(fill_tail(load(p + c, n), n, 1.0f));
            });
            sum.loss -= static_cast<double>(reduce_add(total));
        }
        return;
    }
    for_each_position(s, begin, end, [&](int64_t position, int64_t at, auto n) {
        const Rows rows(args, position, n);
        for (int i = 0; i < n; ++i) count_label(args, position + i, rows.label[i], sum);
        V total = zero();
        rows.for_each_class(
            s.size, [&](int64_t c, V counted) { total += counted * log_share(load(args.p + at + c * s.inner, n)); });
        sum.loss -= static_cast<double>(reduce_add(select(rows.counts, total, zero())));
    });
}

void backward(const InfogainArgs& args, const InfogainGradient& gradient, int64_t begin, int64_t end) {
    const Axis& s = args.axis;
    const V scale = broadcast(gradient.scale);
    const auto put = [&](int64_t at, V slope, auto n) {
        float* dx = gradient.dx + at;
        store(dx, gradient.accumulate ? load(dx, n) + slope : slope, n);
    };
    if (s.inner == 1) {
        for (int64_t o = begin; o < end; ++o) {
            const int64_t label = class_of(args, o);
            const float* row = args.matrix + max(label, 0) * s.size;
            const V sum = broadcast(label < 0 ? 0.0f : gradient.row_sums[label]);
            for_each_vector(0, s.size, [&](int64_t c, auto n) {
                const int64_t at = o * s.size + c;
                put(at, label < 0 ? zero() : scale * (load(args.p + at, n) * sum - load(row + c, n)), n);
            });
        }
        return;
    }
    for_each_position(s, begin, end, [&](int64_t position, int64_t at, auto n) {
        const Rows rows(args, position, n);
        V sum = zero();
        for (int i = 0; i < n; ++i) sum[i] = rows.label[i] < 0 ? 0.0f : gradient.row_sums[rows.label[i]];
        rows.for_each_class(s.size, [&](int64_t c, V counted) {
            const V slope = scale * (load(args.p + at + c * s.inner, n) * sum - counted);
            put(at + c * s.inner, select(rows.counts, slope, zero()), n);
        });
    });
}

}  // namespace

const InfogainKernels infogain_kernels = {forward, backward};

}  // namespace layermem::cpu::LAYERMEM_ISA
