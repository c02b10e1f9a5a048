// Losses against targets: sums over all elements, cut into parts as in channel_sums.cuh, and gradients element by
// element.
//   x0, x1    [count] float read, of HingeLoss and MultinomialLogisticLoss x0 [items][classes] and labels [items]
//   *_forward   parts [parts][terms] float written: the loss, and how many elements count
//   launch    as channel_sums over one column: grid (1, parts), block 256
//   *_backward  dx0, dx1 [count] float written or added to; may lie on x0 or x1
//   launch    one thread an element, grid ceil(count / 256), block 256
//   traffic   8 bytes per element forward, 12 or 16 backward: bound by memory
//   assumes   x1 in the order of x0's memory (the host has it reordered where it is not)
//   source    Caffe's layers of these names; formulas as in layermem/backends/reference/loss.py
#include "channel_sums.cuh"
#include "labels.cuh"

using namespace lm;

struct LossArgs {
    float* parts;
    float* dx0;  // or null
    float* dx1;  // or null
    const float* x0;
    const float* x1;
    const float* dy;
    Labels labels;  // Hinge, MultinomialLogistic: one per item; SigmoidCrossEntropy: what to ignore
    Normalizer normalizer;
    Columns at;                    // of one column
    Divider by_item, by_channels;  // elements of an item; of those, the channels that lie side by side
    int count, squared;
    int accumulate0, accumulate1;
};

// term(i, in, values) fills values[TERMS][1] from element i of each array in x.
template <int TERMS, int INPUTS, class Term>
LM_FN void sum_losses(const LossArgs& p, const float* const (&x)[INPUTS], Term term) {
    sum_columns<TERMS, 1>(p.at, x, term, [&](int, float (&sums)[TERMS][1]) {
        for (int k = 0; k < TERMS; ++k) p.parts[part_of(p.at) * TERMS + k] = sums[k][0];
    });
}

LM_FN unsigned my_element() { return blockIdx.x * 256u + threadIdx.x; }

// ---- EuclideanLoss --------------------------------------------------------------------------------------------------

LM_KERNEL(euclidean_forward, LossArgs, p, COLUMN_THREADS) {
    sum_losses<1>(p, {p.x0, p.x1}, [](int, const float (&in)[2][1], float (&values)[1][1]) {
        const float difference = in[0][0] - in[1][0];
        values[0][0] = difference * difference;
    });
}

LM_KERNEL(euclidean_backward, LossArgs, p, 256) {
    const unsigned i = my_element();
    if (i >= static_cast<unsigned>(p.count)) return;
    const float gradient = *p.dy / value_of(p.normalizer) * (p.x0[i] - p.x1[i]);
    if (p.dx0 != nullptr) put(p.dx0 + i, gradient, p.accumulate0);
    if (p.dx1 != nullptr) put(p.dx1 + i, -gradient, p.accumulate1);
}

// ---- SmoothL1Loss ---------------------------------------------------------------------------------------------------

struct SmoothL1Args {
    float* parts;  // forward
    float* dx0;    // or null
    float* dx1;    // or null
    const float* x0;
    const float* x1;
    const float* inside;   // or null
    const float* outside;  // or null
    const float* dy;
    Columns at;  // of one column
    int count, items;
    int accumulate0, accumulate1;
    float sharpness;  // sigma^2
};

LM_FN float weighted_difference(const SmoothL1Args& p, int i, float x0, float x1) {
    const float difference = x0 - x1;
    return p.inside != nullptr ? p.inside[i] * difference : difference;
}

LM_KERNEL(smooth_l1_forward, SmoothL1Args, p, COLUMN_THREADS) {
    sum_columns<1, 1>(
        p.at, {p.x0, p.x1},
        [&](int i, const float (&in)[2][1], float (&values)[1][1]) {
            const float d = weighted_difference(p, i, in[0][0], in[1][0]), far = fabsf(d);
            const float loss = far < 1.0f / p.sharpness ? 0.5f * p.sharpness * d * d : far - 0.5f / p.sharpness;
            values[0][0] = p.outside != nullptr ? p.outside[i] * loss : loss;
        },
        [&](int, float (&sums)[1][1]) { p.parts[part_of(p.at)] = sums[0][0]; });
}

LM_KERNEL(smooth_l1_backward, SmoothL1Args, p, 256) {
    const unsigned i = my_element();
    if (i >= static_cast<unsigned>(p.count)) return;
    const float d = weighted_difference(p, i, p.x0[i], p.x1[i]), sign = d > 0.0f ? 1.0f : d < 0.0f ? -1.0f : d;
    float gradient = *p.dy / static_cast<float>(p.items) * (fabsf(d) < 1.0f / p.sharpness ? p.sharpness * d : sign);
    if (p.inside != nullptr) gradient *= p.inside[i];
    if (p.outside != nullptr) gradient *= p.outside[i];
    if (p.dx0 != nullptr) put(p.dx0 + i, gradient, p.accumulate0);
    if (p.dx1 != nullptr) put(p.dx1 + i, -gradient, p.accumulate1);
}

// ---- SigmoidCrossEntropyLoss ----------------------------------------------------------------------------------------

LM_FN bool counts(const Labels& of, float target) {
    return !of.has_ignore || target <= -2e9f || target >= 2e9f || static_cast<int>(target) != of.ignore;
}

LM_KERNEL(sigmoid_cross_entropy_forward, LossArgs, p, COLUMN_THREADS) {
    sum_losses<2>(p, {p.x0, p.x1}, [&](int, const float (&in)[2][1], float (&values)[2][1]) {
        const float x = in[0][0], t = in[1][0];
        const bool valid = counts(p.labels, t);
        values[0][0] = valid ? fmaxf(x, 0.0f) - x * t + log1pf(expf(-fabsf(x))) : 0.0f;
        values[1][0] = valid ? 1.0f : 0.0f;
    });
}

LM_KERNEL(sigmoid_cross_entropy_backward, LossArgs, p, 256) {
    const unsigned i = my_element();
    if (i >= static_cast<unsigned>(p.count)) return;
    const float t = p.x1[i], sigmoid = 0.5f * tanhf(0.5f * p.x0[i]) + 0.5f;
    const float gradient = counts(p.labels, t) ? *p.dy / value_of(p.normalizer) * (sigmoid - t) : 0.0f;
    put(p.dx0 + i, gradient, p.accumulate0);
}

// ---- HingeLoss, MultinomialLogisticLoss -----------------------------------------------------------------------------

// Returns the place in its item's memory of class number `label`, counted in Caffe's order; -1 for none.
LM_FN int place_of(const LossArgs& p, int label) {
    const int channels = p.by_channels.divisor, places = static_cast<int>(p.by_item.divisor) / channels;
    return label < 0 ? -1 : label % places * channels + label / places;
}

// +1, or -1 at the item's label.
LM_FN float hinge_sign(const LossArgs& p, int i) {
    const int item = divide(i, p.by_item), place = i - item * static_cast<int>(p.by_item.divisor);
    return place == place_of(p, label_at(p.labels, item)) ? -1.0f : 1.0f;
}

LM_KERNEL(hinge_forward, LossArgs, p, COLUMN_THREADS) {
    sum_losses<1>(p, {p.x0}, [&](int i, const float (&in)[1][1], float (&values)[1][1]) {
        const float over = positive(1.0f + hinge_sign(p, i) * in[0][0]);
        values[0][0] = p.squared ? over * over : over;
    });
}

LM_KERNEL(hinge_backward, LossArgs, p, 256) {
    const unsigned i = my_element();
    if (i >= static_cast<unsigned>(p.count)) return;
    const float sign = hinge_sign(p, i), over = positive(1.0f + sign * p.x0[i]);
    const float slope = p.squared ? 2.0f * over : over > 0.0f ? 1.0f : over;
    put(p.dx0 + i, *p.dy / value_of(p.normalizer) * sign * slope, p.accumulate0);
}

constexpr float SMALLEST = 1e-20f;  // probability that the logarithm is still taken of

LM_KERNEL(multinomial_logistic_forward, LossArgs, p, COLUMN_THREADS) {  // one row an item
    sum_losses<1>(p, {p.labels.labels}, [&](int item, const float (&)[1][1], float (&values)[1][1]) {
        const int place = place_of(p, label_at(p.labels, item));
        const float own = place < 0 ? 1.0f : p.x0[item * static_cast<int>(p.by_item.divisor) + place];
        values[0][0] = -logf(own < SMALLEST ? SMALLEST : own);
    });
}

LM_KERNEL(multinomial_logistic_backward, LossArgs, p, 256) {
    const unsigned i = my_element();
    if (i >= static_cast<unsigned>(p.count)) return;
    const int item = divide(i, p.by_item), place = i - item * p.by_item.divisor;
    const bool own = place == place_of(p, label_at(p.labels, item));
    const float gradient = own ? -(*p.dy / value_of(p.normalizer)) / (p.x0[i] < SMALLEST ? SMALLEST : p.x0[i]) : 0.0f;
    put(p.dx0 + i, gradient, p.accumulate0);
}

// ---- ContrastiveLoss ------------------------------------------------------------------------------------------------

// contrastive_forward, contrastive_backward: each [items], or dx0, dx1 [items][channels], from x0, x1 and same [items].
//   launch   one warp a pair: grid ceil(items / 8), block 256
struct ContrastiveArgs {
    float* each;  // [items]: the loss of each pair
    float* dx0;
    float* dx1;
    const float* x0;
    const float* x1;
    const float* same;
    const float* dy;
    int items, of_items, channels, legacy;  // the loss is divided by of_items
    int accumulate0, accumulate1;
    float margin;
};

constexpr float NEAR = 1e-4f;  // keeps from dividing by a distance of 0

LM_FN float squared_distance(const ContrastiveArgs& p, int pair) {
    float sum = 0;
    for (int c = threadIdx.x % WARP; c < p.channels; c += WARP) {
        const float difference = p.x0[pair * p.channels + c] - p.x1[pair * p.channels + c];
        sum += difference * difference;
    }
    return warp_sum(sum);
}

LM_FN bool are_same(const ContrastiveArgs& p, int pair) { return fabsf(p.same[pair]) >= 1.0f; }

LM_KERNEL(contrastive_forward, ContrastiveArgs, p, 256) {
    const int pair = blockIdx.x * 8 + threadIdx.x / WARP;
    if (pair >= p.items) return;
    const float squared = squared_distance(p, pair), gap = positive(p.margin - sqrtf(squared));
    const float apart = p.legacy ? positive(p.margin - squared) : gap * gap;
    if (threadIdx.x % WARP == 0) p.each[pair] = are_same(p, pair) ? squared : apart;
}

LM_KERNEL(contrastive_backward, ContrastiveArgs, p, 256) {
    const int pair = blockIdx.x * 8 + threadIdx.x / WARP;
    if (pair >= p.items) return;
    const float squared = squared_distance(p, pair), distance = sqrtf(squared);
    const float apart =
        p.legacy ? (p.margin - squared > 0.0f ? -1.0f : 0.0f) : -positive(p.margin - distance) / (distance + NEAR);
    const float scale = *p.dy / static_cast<float>(p.of_items) * (are_same(p, pair) ? 1.0f : apart);
    for (int c = threadIdx.x % WARP; c < p.channels; c += WARP) {
        const int i = pair * p.channels + c;
        const float gradient = scale * (p.x0[i] - p.x1[i]);
        if (p.dx0 != nullptr) put(p.dx0 + i, gradient, p.accumulate0);
        if (p.dx1 != nullptr) put(p.dx1 + i, -gradient, p.accumulate1);
    }
}
