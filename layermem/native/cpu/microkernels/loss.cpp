// Losses against targets: each task adds the loss of its range to a LossPartial; gradients are element by element.
// Formulas are in kernels/loss.h.
#include "cpu/microkernels/loss.h"

#include "cpu/isa/simd_math.h"

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

// 1 where a target counts, 0 where its integer part is ignore_label.
inline V count_mask(const Labels& labels, V target) {
    if (!labels.ignores) return broadcast(1.0f);
    const I whole = __builtin_convertvector(target, I);
    return select(whole == static_cast<int32_t>(labels.ignore_label), zero(), broadcast(1.0f));
}

void sigmoid_loss(const TargetArgs& args, int64_t begin, int64_t end, LossPartial& sum) {
    V loss = zero(), valid = zero();
    for_each_vector(begin, end, [&](int64_t i, auto n) {
        const V x = load(args.x + i, n), t = load(args.labels.label + i, n);
        const V one = clear_tail(count_mask(args.labels, t), n);
        // -t log(sigmoid(x)) - (1 - t) log(1 - sigmoid(x)), arranged so that exp does not overflow
        const V element_loss = max(x, zero()) - x * t + log1p(exp(-abs(x)));
        loss += select(one > zero(), element_loss, zero());
        valid += one;
    });
    sum.loss += static_cast<double>(reduce_add(loss));
    sum.valid += static_cast<int64_t>(reduce_add(valid));
}

// dx = scale (sigmoid(x) - t)
void sigmoid_loss_backward(const TargetArgs& args, int64_t begin, int64_t end) {
    for_each_vector(begin, end, [&](int64_t i, auto n) {
        const V t = load(args.labels.label + i, n), slope = broadcast(args.scale) * (sigmoid(load(args.x + i, n)) - t);
        const V dx = select(count_mask(args.labels, t) > zero(), slope, zero());
        store(args.out + i, args.accumulate ? load(args.out + i, n) + dx : dx, n);
    });
}

// -- pairs ------------------------------------------------------------------------------------------------------------

inline float squared_distance(const float* a, const float* b, int64_t begin, int64_t end) {
    V sum = zero();
    for_each_vector(begin, end, [&](int64_t i, auto n) {
        const V d = load(a + i, n) - load(b + i, n);
        sum += d * d;
    });
    return reduce_add(sum);
}

// da (+)= factor * (a - b), db (+)= its negative; both inputs of a register are read before either is written.
inline void difference_backward(const PairArgs& args, int64_t begin, int64_t end, float factor) {
    for_each_vector(begin, end, [&](int64_t i, auto n) __attribute__((always_inline)) {
        const V d = broadcast(factor) * (load(args.a + i, n) - load(args.b + i, n));
        if (args.da) store(args.da + i, args.accumulate_da ? load(args.da + i, n) + d : d, n);
        if (args.db) store(args.db + i, args.accumulate_db ? load(args.db + i, n) - d : -d, n);
    });
}

void euclidean_loss(const PairArgs& args, int64_t begin, int64_t end, LossPartial& sum) {
    sum.loss += static_cast<double>(squared_distance(args.a, args.b, begin, end));
}

void euclidean_loss_backward(const PairArgs& args, int64_t begin, int64_t end) {
    difference_backward(args, begin, end, args.scale);
}

// inside (a - b) of a register.
inline V weighted_difference(const SmoothL1Args& args, int64_t i, int n) {
    const V d = load(args.a + i, n) - load(args.b + i, n);
    return args.inside ? load(args.inside + i, n) * d : d;
}

// sharpness d^2 / 2 where |d| < 1 / sharpness, else |d| - 1 / (2 sharpness); 0 in the lanes beyond the end
void smooth_l1_loss(const SmoothL1Args& args, int64_t begin, int64_t end, LossPartial& sum) {
    const V half = broadcast(0.5f * args.sharpness), knee = broadcast(1 / args.sharpness);
    const V below = broadcast(0.5f / args.sharpness);
    V loss = zero();
    for_each_vector(begin, end, [&](int64_t i, auto n) {
        const V d = weighted_difference(args, i, n), far = abs(d);
        const V element_loss = select(far < knee, half * d * d, far - below);
        loss += args.outside ? load(args.outside + i, n) * element_loss : element_loss;
    });
    sum.loss += static_cast<double>(reduce_add(loss));
}

// da = scale outside inside f'(d), db = -da; every input of a register is read before either is written.
void smooth_l1_loss_backward(const SmoothL1Args& args, int64_t begin, int64_t end) {
    const V knee = broadcast(1 / args.sharpness);
    for_each_vector(begin, end, [&](int64_t i, auto n) {
        const V d = weighted_difference(args, i, n);
        const V sign = select(d > zero(), broadcast(1.0f), select(d < zero(), broadcast(-1.0f), d));
        V slope = broadcast(args.scale) * select(abs(d) < knee, broadcast(args.sharpness) * d, sign);
        if (args.inside) slope *= load(args.inside + i, n);
        if (args.outside) slope *= load(args.outside + i, n);
        if (args.da) store(args.da + i, args.accumulate_da ? load(args.da + i, n) + slope : slope, n);
        if (args.db) store(args.db + i, args.accumulate_db ? load(args.db + i, n) - slope : -slope, n);
    });
}

// Whether the pair belongs together.
inline bool is_same(const PairArgs& args, int64_t item) { return static_cast<int64_t>(args.same[item]) != 0; }
inline float clamp_at_zero(float x) { return x < 0 ? 0 : x; }

void contrastive_loss(const PairArgs& args, int64_t begin, int64_t end, LossPartial& sum) {
    for (int64_t item = begin; item < end; ++item) {
        const float square = squared_distance(args.a, args.b, item * args.size, (item + 1) * args.size);
        const float gap = clamp_at_zero(args.margin - (args.legacy ? square : __builtin_sqrtf(square)));
        sum.loss += static_cast<double>(is_same(args, item) ? square : args.legacy ? gap : gap * gap);
    }
}

// da = scale * slope * (a - b): slope is 1 for pairs that belong together; for others it pushes them apart within
// margin.
void contrastive_loss_backward(const PairArgs& args, int64_t begin, int64_t end) {
    constexpr float kMinDistance = 1e-4f;  // added to the distance that is divided by: it may be 0
    for (int64_t item = begin; item < end; ++item) {
        const int64_t first = item * args.size, item_end = first + args.size;
        float slope = 1;
        if (!is_same(args, item)) {
            const float square = squared_distance(args.a, args.b, first, item_end), distance = __builtin_sqrtf(square);
            slope = args.legacy ? (square < args.margin ? -1.0f : 0.0f)
                                : -clamp_at_zero(args.margin - distance) / (distance + kMinDistance);
        }
        difference_backward(args, first, item_end, args.scale * slope);
    }
}

// -- a label for each item --------------------------------------------------------------------------------------------

// Offset of the label's score in its item; -1 for a label out of range.
inline int64_t label_offset(const ItemArgs& args, int64_t item) {
    const int64_t label = label_class(args.label[item]), pixels = args.classes / args.channels;
    return label < 0 || label >= args.classes ? -1 : label % pixels * args.channels + label / pixels;
}

inline void add_item(const ItemArgs& args, int64_t item, int64_t label_at, float loss, LossPartial& sum) {
    if (label_at >= 0) {
        sum.loss += static_cast<double>(loss);
    } else {
        ++sum.bad_labels;
        sum.bad_label = args.label[item];
    }
}

// body(offset, n, s, max(0, 1 + s x)) along an item, s = -1 at its label and 1 elsewhere
template <class Body>
LAYERMEM_INLINE void hinges(const ItemArgs& args, int64_t item, int64_t label_at, const Body& body) {
    I lanes;
    for (int i = 0; i < kLanes; ++i) lanes[i] = i;
    for_each_vector(0, args.classes, [&](int64_t i, auto n) __attribute__((always_inline)) {
        const I own = lanes == static_cast<int32_t>(label_at - i);
        const V s = select(own, broadcast(-1.0f), broadcast(1.0f));
        const int64_t at = item * args.classes + i;
        body(at, n, s, relu(broadcast(1.0f) + s * load(args.x + at, n)));
    });
}

void hinge_loss(const ItemArgs& args, int64_t begin, int64_t end, LossPartial& sum) {
    for (int64_t item = begin; item < end; ++item) {
        const int64_t label_at = label_offset(args, item);
        V loss = zero();
        hinges(args, item, label_at, [&](int64_t, auto n, V, V hinge) __attribute__((always_inline)) {
            loss += clear_tail(args.squared ? hinge * hinge : hinge, n);
        });
        add_item(args, item, label_at, reduce_add(loss), sum);
    }
}

// dx = scale s [hinge > 0], or 2 scale s hinge of the squared loss
void hinge_loss_backward(const ItemArgs& args, int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item)
        hinges(args, item, label_offset(args, item),
               [&](int64_t at, auto n, V s, V hinge) __attribute__((always_inline)) {
                   const V slope = args.squared ? hinge + hinge : select(hinge > zero(), broadcast(1.0f), zero());
                   const V dx = broadcast(args.scale) * s * slope;
                   store(args.out + at, args.accumulate ? load(args.out + at, n) + dx : dx, n);
               });
}

constexpr float kSmallestProbability = 1e-20f;  // smaller ones count as this: the loss stays finite

void logistic_loss(const ItemArgs& args, int64_t begin, int64_t end, LossPartial& sum) {
    for (int64_t item = begin; item < end; ++item) {
        const int64_t label_at = label_offset(args, item);
        const float p = label_at < 0 ? 1.0f : args.x[item * args.classes + label_at];
        add_item(args, item, label_at, -log(broadcast(p < kSmallestProbability ? kSmallestProbability : p))[0], sum);
    }
}

// dx = -scale / p at the label, 0 elsewhere
void logistic_loss_backward(const ItemArgs& args, int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
        const int64_t label_at = label_offset(args, item);
        float* out = args.out + item * args.classes;
        const float p =
            label_at < 0 ? 0 : args.x[item * args.classes + label_at];  // before dx is written, which may be x
        if (!args.accumulate) for_each_vector(0, args.classes, [&](int64_t i, auto n) { store(out + i, zero(), n); });
        if (label_at >= 0) out[label_at] -= args.scale / (p < kSmallestProbability ? kSmallestProbability : p);
    }
}

}  // namespace

const LossKernels loss_kernels = {
    sigmoid_loss,   sigmoid_loss_backward,   euclidean_loss,   euclidean_loss_backward,
    smooth_l1_loss, smooth_l1_loss_backward, contrastive_loss, contrastive_loss_backward,
    hinge_loss,     hinge_loss_backward,     logistic_loss,    logistic_loss_backward,
};

}  // namespace layermem::cpu::LAYERMEM_ISA
