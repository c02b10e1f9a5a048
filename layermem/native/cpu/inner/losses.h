// Losses against targets: sums of a stretch in float, kept in double from stretch to stretch.

inline V counts(const Labels& labels, V target) {  // 1 where a target counts
    if (!labels.ignores) return splat(1.0f);
    const I whole = __builtin_convertvector(target, I);
    return pick(whole == static_cast<int32_t>(labels.ignore_label), zero(), splat(1.0f));
}

void sigmoid_loss(const TargetArgs& g, int64_t begin, int64_t end, Judged& sum) {
    V loss = zero(), valid = zero();
    each(begin, end, [&](int64_t i, auto n) {
        const V x = load(g.x + i, n), t = load(g.labels.label + i, n), one = clear_tail(counts(g.labels, t), n);
        const V each_loss = larger(x, zero()) - x * t + log_1_plus(exp(-absolute(x)));
        loss += pick(one > zero(), each_loss, zero());
        valid += one;
    });
    sum.loss += static_cast<double>(total(loss));
    sum.valid += static_cast<int64_t>(total(valid));
}

void sigmoid_loss_back(const TargetArgs& g, int64_t begin, int64_t end) {
    each(begin, end, [&](int64_t i, auto n) {
        const V t = load(g.labels.label + i, n), slope = splat(g.scale) * (sigmoid(load(g.x + i, n)) - t);
        const V dx = pick(counts(g.labels, t) > zero(), slope, zero());
        store(g.out + i, g.accumulate ? load(g.out + i, n) + dx : dx, n);
    });
}

// -- pairs ------------------------------------------------------------------------------------------------------------

inline float squared_distance(const float* a, const float* b, int64_t begin, int64_t end) {
    V sum = zero();
    each(begin, end, [&](int64_t i, auto n) {
        const V d = load(a + i, n) - load(b + i, n);
        sum += d * d;
    });
    return total(sum);
}

// factor * (a - b) to out_a, its negative to out_b; both inputs of a register are read before either is written.
inline void difference_back(const PairArgs& g, int64_t begin, int64_t end, float factor) {
    each(begin, end, [&](int64_t i, auto n) __attribute__((always_inline)) {
        const V d = splat(factor) * (load(g.a + i, n) - load(g.b + i, n));
        if (g.out_a) store(g.out_a + i, g.accumulate_a ? load(g.out_a + i, n) + d : d, n);
        if (g.out_b) store(g.out_b + i, g.accumulate_b ? load(g.out_b + i, n) - d : -d, n);
    });
}

void euclidean_loss(const PairArgs& g, int64_t begin, int64_t end, Judged& sum) {
    sum.loss += static_cast<double>(squared_distance(g.a, g.b, begin, end));
}

void euclidean_loss_back(const PairArgs& g, int64_t begin, int64_t end) { difference_back(g, begin, end, g.scale); }

inline bool alike(const PairArgs& g, int64_t item) { return static_cast<int64_t>(g.same[item]) != 0; }
inline float above_zero(float x) { return x < 0 ? 0 : x; }

void contrastive_loss(const PairArgs& g, int64_t begin, int64_t end, Judged& sum) {
    for (int64_t item = begin; item < end; ++item) {
        const float square = squared_distance(g.a, g.b, item * g.size, (item + 1) * g.size);
        const float gap = above_zero(g.margin - (g.legacy ? square : __builtin_sqrtf(square)));
        sum.loss += static_cast<double>(alike(g, item) ? square : g.legacy ? gap : gap * gap);
    }
}

void contrastive_loss_back(const PairArgs& g, int64_t begin, int64_t end) {
    constexpr float NEAR = 1e-4f;  // keeps a distance of 0 from dividing
    for (int64_t item = begin; item < end; ++item) {
        const int64_t from = item * g.size, till = from + g.size;
        float slope = 1;
        if (!alike(g, item)) {
            const float square = squared_distance(g.a, g.b, from, till), distance = __builtin_sqrtf(square);
            slope =
                g.legacy ? (square < g.margin ? -1.0f : 0.0f) : -above_zero(g.margin - distance) / (distance + NEAR);
        }
        difference_back(g, from, till, g.scale * slope);
    }
}

// -- a label for each item --------------------------------------------------------------------------------------------

// Where in an item its label's score lies; -1: the label is no class.
inline int64_t place_of(const ItemArgs& g, int64_t item) {
    const int64_t label = static_cast<int64_t>(g.label[item]), pixels = g.classes / g.channels;
    return label < 0 || label >= g.classes ? -1 : label % pixels * g.channels + label / pixels;
}

inline void judge_item(const ItemArgs& g, int64_t item, int64_t place, float loss, Judged& sum) {
    if (place >= 0)
        sum.loss += static_cast<double>(loss);
    else
        ++sum.wrong, sum.example = static_cast<int64_t>(g.label[item]);
}

// body(offset, n, s, max(0, 1 + s x)) along an item, s = -1 at its label and 1 elsewhere
template <class Body>
inline __attribute__((always_inline)) void hinges(const ItemArgs& g, int64_t item, int64_t place, const Body& body) {
    I lanes;
    for (int i = 0; i < LANES; ++i) lanes[i] = i;
    each(0, g.classes, [&](int64_t i, auto n) __attribute__((always_inline)) {
        const I own = lanes == static_cast<int32_t>(place - i);
        const V s = pick(own, splat(-1.0f), splat(1.0f));
        const int64_t at = item * g.classes + i;
        body(at, n, s, rectified(splat(1.0f) + s * load(g.x + at, n)));
    });
}

void hinge_loss(const ItemArgs& g, int64_t begin, int64_t end, Judged& sum) {
    for (int64_t item = begin; item < end; ++item) {
        const int64_t place = place_of(g, item);
        V loss = zero();
        hinges(g, item, place, [&](int64_t, auto n, V, V over) __attribute__((always_inline)) {
            loss += clear_tail(g.squared ? over * over : over, n);
        });
        judge_item(g, item, place, total(loss), sum);
    }
}

void hinge_loss_back(const ItemArgs& g, int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item)
        hinges(g, item, place_of(g, item), [&](int64_t at, auto n, V s, V over) __attribute__((always_inline)) {
            const V slope = g.squared ? over + over : pick(over > zero(), splat(1.0f), zero());
            const V dx = splat(g.scale) * s * slope;
            store(g.out + at, g.accumulate ? load(g.out + at, n) + dx : dx, n);
        });
}

constexpr float SMALLEST = 1e-20f;  // probability whose logarithm is still taken

void logistic_loss(const ItemArgs& g, int64_t begin, int64_t end, Judged& sum) {
    for (int64_t item = begin; item < end; ++item) {
        const int64_t place = place_of(g, item);
        const float p = place < 0 ? 1.0f : g.x[item * g.classes + place];
        judge_item(g, item, place, -log(splat(p < SMALLEST ? SMALLEST : p))[0], sum);
    }
}

void logistic_loss_back(const ItemArgs& g, int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
        const int64_t place = place_of(g, item);
        float* out = g.out + item * g.classes;
        const float p = place < 0 ? 0 : g.x[item * g.classes + place];  // before dx, which may lie on x
        if (!g.accumulate) each(0, g.classes, [&](int64_t i, auto n) { store(out + i, zero(), n); });
        if (place >= 0) out[place] -= g.scale / (p < SMALLEST ? SMALLEST : p);
    }
}
