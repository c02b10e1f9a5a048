// Scores of classes: softmax, its loss, accuracy.

inline float highest(const float* x, int64_t count) {
    V most = splat(-__builtin_inff());
    each(0, count, [&](int64_t i, auto n) { most = larger(fill_tail(load(x + i, n), n, -__builtin_inff()), most); });
    return largest(most);
}

// The sum of exp(x - top) over a row, and those numbers in `out` where it is not null.
inline float sum_exp(float* out, const float* x, int64_t count, float top) {
    V sum = zero();
    each(0, count, [&](int64_t i, auto n) {
        const V e = exp(load(x + i, n) - splat(top));
        if (out) store(out + i, e, n);
        sum += clear_tail(e, n);
    });
    return total(sum);
}

// A label as a class; -1: ignored, -2: no class.
inline int64_t class_of(const SoftmaxArgs& g, int64_t position) {
    const int64_t label = static_cast<int64_t>(g.labels.label[position]);
    if (g.labels.ignores && label == g.labels.ignore_label) return -1;
    return label >= 0 && label < g.axis.size ? label : -2;
}

inline void judge(const SoftmaxArgs& g, int64_t position, int64_t label, float loss, Judged& sum) {
    if (label >= 0)
        sum.loss += static_cast<double>(loss), ++sum.valid;
    else if (label == -2)
        ++sum.wrong, sum.example = static_cast<int64_t>(g.labels.label[position]);
}

// As class_of, of a register of positions; lanes beyond n are ignored.
template <class N>
inline I classes_of(const SoftmaxArgs& g, int64_t position, N n) {
    const I label = __builtin_convertvector(fill_tail(load(g.labels.label + position, n), n, 0.0f), I);
    const I is_class = (label >= 0) & (label < static_cast<int32_t>(g.axis.size));
    I found = (is_class & label) | (~is_class & -2);
    if (g.labels.ignores && g.labels.ignore_label == static_cast<int32_t>(g.labels.ignore_label)) {
        const I ignored = label == static_cast<int32_t>(g.labels.ignore_label);
        found = (ignored & -1) | (~ignored & found);
    }
    if (n < LANES) {
        const I there = lanes_of((1u << n) - 1);
        found = (there & found) | (~there & -1);
    }
    return found;
}

inline uint32_t lanes_where(I condition) { return positive(pick(condition, splat(1.0f), zero())); }

template <class N>
inline void judge_each(const SoftmaxArgs& g, int64_t position, I label, V loss, N n, Judged& sum) {
    const uint32_t wrong = lanes_where(label == -2);
    sum.loss += static_cast<double>(total(pick(label >= 0, loss, zero())));
    sum.valid += __builtin_popcount(lanes_where(label >= 0));
    for (int i = 0; wrong && i < n; ++i)
        if (wrong >> i & 1) judge(g, position + i, -2, 0, sum);
}

// Where inner > 1 lanes are neighbouring positions; this calls body(offset of the first class, first position, n).
template <class Body>
inline __attribute__((always_inline)) void across(const Axis& s, int64_t begin, int64_t end, const Body& body) {
    for (int64_t o = begin; o < end; ++o)
        each(0, s.inner, [&](int64_t i, auto n) __attribute__((always_inline)) {
            body(o * s.size * s.inner + i, o * s.inner + i, n);
        });
}

template <class N>
inline V top_across(const Axis& s, const float* x, N n) {
    V top = splat(-__builtin_inff());
    for (int64_t c = 0; c < s.size; ++c) top = larger(load(x + c * s.inner, n), top);
    return top;
}

template <class N>
inline V sum_exp_across(const Axis& s, const float* x, V top, N n) {
    V sum = zero();
    for (int64_t c = 0; c < s.size; ++c) sum += exp(load(x + c * s.inner, n) - top);
    return sum;
}

// -- rows of few classes ----------------------------------------------------------------------------------------------

constexpr int64_t SHORTER = 8;  // in place of SHORT where there is no exp to save

inline bool in_rows(const Axis& s, int64_t few = SHORT) { return s.inner == 1 && s.size > few; }
inline bool of_few(const Axis& s, int64_t few = SHORT) { return s.inner == 1 && s.size <= few && s.outer > 1; }

// As many positions as there are lanes at a time, turned over: run(t) sees them side by side, as of [1][size][positions].
template <class Run>
inline void turned(const SoftmaxArgs& g, int64_t begin, int64_t end, const Run& run) {
    const int64_t size = g.axis.size;
    float a[SHORT * LANES], dy[SHORT * LANES], out[SHORT * LANES];
    for (int64_t o = begin; o < end; o += LANES) {
        const int64_t count = least(LANES, end - o);
        SoftmaxArgs t = g;
        t.axis = {1, size, count}, t.a = a;
        turn(a, count, g.a + o * size, size, count, size);
        if (g.dy) turn(dy, count, g.dy + o * size, size, count, size), t.dy = dy;
        if (g.out) t.out = out;
        if (g.accumulate) turn(out, count, g.out + o * size, size, count, size);
        if (g.labels.label) t.labels.label = g.labels.label + o;
        if (g.found) t.found = g.found + o;
        run(t);
        if (g.out) turn(g.out + o * size, size, out, count, size, count);
    }
}

// -- softmax and what is found from it ---------------------------------------------------------------------------------

void softmax(const SoftmaxArgs& g, int64_t begin, int64_t end) {
    const Axis& s = g.axis;
    if (of_few(s)) return turned(g, begin, end, [&](const SoftmaxArgs& t) { softmax(t, 0, 1); });
    if (in_rows(s)) {
        for (int64_t o = begin; o < end; ++o) {
            const float* x = g.a + o * s.size;
            float* y = g.out + o * s.size;
            const V sum = splat(sum_exp(y, x, s.size, highest(x, s.size)));
            each(0, s.size, [&](int64_t i, auto n) { store(y + i, load(y + i, n) / sum, n); });
        }
        return;
    }
    across(s, begin, end, [&](int64_t at, int64_t, auto n) {
        const V top = top_across(s, g.a + at, n), sum = sum_exp_across(s, g.a + at, top, n);
        for (int64_t c = 0; c < s.size; ++c)
            store(g.out + at + c * s.inner, exp(load(g.a + at + c * s.inner, n) - top) / sum, n);
    });
}

void softmax_back(const SoftmaxArgs& g, int64_t begin, int64_t end) {
    const Axis& s = g.axis;
    if (of_few(s, SHORTER)) return turned(g, begin, end, [&](const SoftmaxArgs& t) { softmax_back(t, 0, 1); });
    const auto gradient = [&](int64_t at, V dot, auto n) {
        const V dx = load(g.a + at, n) * (load(g.dy + at, n) - dot);
        store(g.out + at, g.accumulate ? load(g.out + at, n) + dx : dx, n);
    };
    if (in_rows(s, SHORTER)) {
        for (int64_t o = begin; o < end; ++o) {
            V sum = zero();
            const int64_t row = o * s.size;
            each(0, s.size, [&](int64_t i, auto n) { sum += load(g.a + row + i, n) * load(g.dy + row + i, n); });
            const V dot = splat(total(sum));
            each(0, s.size, [&](int64_t i, auto n) { gradient(row + i, dot, n); });
        }
        return;
    }
    across(s, begin, end, [&](int64_t at, int64_t, auto n) {
        V dot = zero();
        for (int64_t c = 0; c < s.size; ++c) dot += load(g.a + at + c * s.inner, n) * load(g.dy + at + c * s.inner, n);
        for (int64_t c = 0; c < s.size; ++c) gradient(at + c * s.inner, dot, n);
    });
}

// -log softmax(x)[label] = log(sum exp(x - top)) - (x[label] - top), before anything rounds to 0; softmax too, if asked.
void softmax_loss(const SoftmaxArgs& g, int64_t begin, int64_t end, Judged& sum) {
    const Axis& s = g.axis;
    if (of_few(s)) return turned(g, begin, end, [&](const SoftmaxArgs& t) { softmax_loss(t, 0, 1, sum); });
    if (in_rows(s)) {
        for (int64_t o = begin; o < end; ++o) {
            const float *x = g.a + o * s.size, top = highest(x, s.size);
            const int64_t label = class_of(g, o);
            const float own = label >= 0 ? x[label] : 0;  // before y, which may lie on x
            float* y = g.out ? g.out + o * s.size : nullptr;
            const float exps = sum_exp(y, x, s.size, top);
            judge(g, o, label, log(splat(exps))[0] - (own - top), sum);
            if (y) each(0, s.size, [&](int64_t i, auto n) { store(y + i, load(y + i, n) / splat(exps), n); });
        }
        return;
    }
    across(s, begin, end, [&](int64_t at, int64_t position, auto n) {
        const V top = top_across(s, g.a + at, n);
        const I label = classes_of(g, position, n);
        V exps = zero(), own = zero();
        for (int64_t c = 0; c < s.size; ++c) {
            const V x = load(g.a + at + c * s.inner, n);
            exps += exp(x - top), own = pick(label == static_cast<int32_t>(c), x, own);
        }
        judge_each(g, position, label, log(exps) - (own - top), n, sum);
        if (g.out)
            for (int64_t c = 0; c < s.size; ++c)
                store(g.out + at + c * s.inner, exp(load(g.a + at + c * s.inner, n) - top) / exps, n);
    });
}

void softmax_loss_back(const SoftmaxArgs& g, int64_t begin, int64_t end) {
    const Axis& s = g.axis;
    if (of_few(s)) return turned(g, begin, end, [&](const SoftmaxArgs& t) { softmax_loss_back(t, 0, 1); });
    const auto gradient = [&](int64_t at, V p, auto n) {
        store(g.out + at, g.accumulate ? load(g.out + at, n) + p : p, n);
    };
    if (in_rows(s)) {
        for (int64_t o = begin; o < end; ++o) {
            const float* x = g.a + o * s.size;
            const float top = highest(x, s.size);
            const int64_t label = class_of(g, o), row = o * s.size;
            const float share = label < 0 ? 0 : g.scale / sum_exp(nullptr, x, s.size, top);
            const float before = g.accumulate && label >= 0 ? g.out[row + label] : 0, own = label >= 0 ? x[label] : 0;
            each(0, s.size, [&](int64_t i, auto n) {
                gradient(row + i, label < 0 ? zero() : exp(load(x + i, n) - splat(top)) * splat(share), n);
            });
            if (label >= 0) g.out[row + label] = before + (exp(splat(own - top))[0] * share - g.scale);
        }
        return;
    }
    across(s, begin, end, [&](int64_t at, int64_t position, auto n) {
        const V top = top_across(s, g.a + at, n), sum = sum_exp_across(s, g.a + at, top, n);
        const I label = classes_of(g, position, n);
        const V share = pick(label < 0, zero(), splat(g.scale) / sum), scale = splat(g.scale);
        for (int64_t c = 0; c < s.size; ++c) {
            const V p = exp(load(g.a + at + c * s.inner, n) - top) * share;
            gradient(at + c * s.inner, pick(label == static_cast<int32_t>(c), p - scale, p), n);
        }
    });
}

// A label is found if fewer than top_k other scores are at least its own; a NaN is nobody's rival, nor is it found.
void accuracy(const SoftmaxArgs& g, int64_t begin, int64_t end, Judged& sum) {
    const Axis& s = g.axis;
    if (of_few(s)) return turned(g, begin, end, [&](const SoftmaxArgs& t) { accuracy(t, 0, 1, sum); });
    const auto decide = [&](int64_t position, int64_t label, float own, float at_least) {
        const bool found = label >= 0 && own == own && static_cast<int64_t>(at_least) <= g.top_k;
        judge(g, position, label, found ? 1.0f : 0.0f, sum);
        if (g.found) g.found[position] = found;
    };
    const auto rival = [](V x, V own) { return pick(x >= own, splat(1.0f), zero()); };
    if (in_rows(s)) {
        for (int64_t o = begin; o < end; ++o) {
            const float* x = g.a + o * s.size;
            const int64_t label = class_of(g, o);
            const float own = label >= 0 ? x[label] : 0;
            V at_least = zero();
            each(0, s.size, [&](int64_t i, auto n) { at_least += clear_tail(rival(load(x + i, n), splat(own)), n); });
            decide(o, label, own, total(at_least));
        }
        return;
    }
    across(s, begin, end, [&](int64_t at, int64_t position, auto n) {
        const I label = classes_of(g, position, n);
        V own = zero(), at_least = zero();
        for (int64_t c = 0; c < s.size; ++c)
            own = pick(label == static_cast<int32_t>(c), load(g.a + at + c * s.inner, n), own);
        for (int64_t c = 0; c < s.size; ++c) at_least += rival(load(g.a + at + c * s.inner, n), own);
        const I found = (label >= 0) & (own == own) & (at_least <= splat(static_cast<float>(g.top_k)));
        judge_each(g, position, label, pick(found, splat(1.0f), zero()), n, sum);
        if (g.found) narrow(g.found + position, found & 1, n);
    });
}
