// Along one axis: softmax, its loss and accuracy, LRN, Interp.

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

void softmax(const SoftmaxArgs& g, int64_t begin, int64_t end) {
    const Axis& s = g.axis;
    if (s.inner == 1) {
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
    const auto gradient = [&](int64_t at, V dot, auto n) {
        const V dx = load(g.a + at, n) * (load(g.dy + at, n) - dot);
        store(g.out + at, g.accumulate ? load(g.out + at, n) + dx : dx, n);
    };
    if (s.inner == 1) {
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
    if (s.inner == 1) {
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
        const V top = top_across(s, g.a + at, n), exps = sum_exp_across(s, g.a + at, top, n), logs = log(exps);
        for (int i = 0; i < n; ++i) {
            const int64_t label = class_of(g, position + i);
            const float own = label >= 0 ? g.a[at + i + label * s.inner] : 0;
            judge(g, position + i, label, logs[i] - (own - top[i]), sum);
        }
        if (g.out)
            for (int64_t c = 0; c < s.size; ++c)
                store(g.out + at + c * s.inner, exp(load(g.a + at + c * s.inner, n) - top) / exps, n);
    });
}

void softmax_loss_back(const SoftmaxArgs& g, int64_t begin, int64_t end) {
    const Axis& s = g.axis;
    const auto gradient = [&](int64_t at, V p, auto n) {
        store(g.out + at, g.accumulate ? load(g.out + at, n) + p : p, n);
    };
    if (s.inner == 1) {
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
        I label = splat_int(-2);
        for (int i = 0; i < n; ++i) label[i] = static_cast<int32_t>(class_of(g, position + i));
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
    const auto decide = [&](int64_t position, int64_t label, float own, float at_least) {
        const bool found = label >= 0 && own == own && static_cast<int64_t>(at_least) <= g.top_k;
        judge(g, position, label, found ? 1.0f : 0.0f, sum);
        if (g.found) g.found[position] = found;
    };
    const auto rival = [](V x, V own) { return pick(x >= own, splat(1.0f), zero()); };
    if (s.inner == 1) {
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
        V own = zero(), at_least = zero();
        int64_t label[LANES];
        for (int i = 0; i < n; ++i) {
            label[i] = class_of(g, position + i);
            if (label[i] >= 0) own[i] = g.a[at + i + label[i] * s.inner];
        }
        for (int64_t c = 0; c < s.size; ++c) at_least += rival(load(g.a + at + c * s.inner, n), own);
        for (int i = 0; i < n; ++i) decide(position + i, label[i], own[i], at_least[i]);
    });
}

// -- LRN ------------------------------------------------------------------------------------------------------------

// Across channels, pixel by pixel.  `room` holds three rows of c + 2 (size / 2) floats: squares, and (backward) the
// scales and products, whose ends beyond the channels are zeros.
inline void window_sums(float* out, const float* padded, int64_t c, int64_t size) {
    each(0, c, [&](int64_t i, auto n) {
        V sum = load(padded + i, n);
        for (int64_t j = 1; j < size; ++j) sum += load(padded + i + j, n);
        store(out + i, sum, n);
    });
}

inline void lrn_scales(const LrnArgs& g, const float* x, float* squares, float* scales) {
    const int64_t half = g.size / 2;
    each(0, g.c, [&](int64_t i, auto n) {
        const V v = load(x + i, n);
        store(squares + half + i, v * v, n);
    });
    window_sums(scales, squares, g.c, g.size);
    each(0, g.c, [&](int64_t i, auto n) { store(scales + i, fma(splat(g.share), load(scales + i, n), splat(g.shift)), n); });
}

void lrn(const LrnArgs& g, int64_t begin, int64_t end, float* room) {
    const int64_t row = g.c + g.size - 1;
    float *squares = room, *scales = room + row;
    for (int64_t i = 0; i < row; ++i) squares[i] = 0;
    for (int64_t p = begin; p < end; ++p) {
        const float* x = g.x + p * g.c;
        lrn_scales(g, x, squares, scales);
        each(0, g.c, [&](int64_t i, auto n) {
            store(g.out + p * g.c + i, load(x + i, n) * power(load(scales + i, n), -g.beta), n);
        });
    }
}

// dx = dy s^-beta - 2 share beta x * (sum over the window of dy x s^(-beta-1))
void lrn_back(const LrnArgs& g, int64_t begin, int64_t end, float* room) {
    const int64_t row = g.c + g.size - 1, half = g.size / 2;
    float *squares = room, *scales = room + row, *products = room + 2 * row;
    for (int64_t i = 0; i < row; ++i) squares[i] = products[i] = 0;
    for (int64_t p = begin; p < end; ++p) {
        const float *x = g.x + p * g.c, *dy = g.dy + p * g.c;
        float* dx = g.out + p * g.c;
        lrn_scales(g, x, squares, scales);
        each(0, g.c, [&](int64_t i, auto n) {
            const V s = load(scales + i, n), straight = load(dy + i, n) * power(s, -g.beta);
            store(products + half + i, straight * load(x + i, n) / s, n);
            store(scales + i, straight, n);
        });
        window_sums(squares, products, g.c, g.size);  // squares are not needed any more, but their zero ends are
        const V factor = splat(2 * g.share * g.beta);
        each(0, g.c, [&](int64_t i, auto n) {
            const V v = load(scales + i, n) - factor * load(x + i, n) * load(squares + i, n);
            store(dx + i, g.accumulate ? load(dx + i, n) + v : v, n);
        });
        for (int64_t i = 0; i < half; ++i) squares[i] = 0;
    }
}

// Sum over the size x size pixels around (y, x) of term(offset of the pixel), a register of channels.
template <class Term>
inline __attribute__((always_inline)) V around(const LrnArgs& g, int64_t y, int64_t x, const Term& term) {
    const int64_t half = g.size / 2;
    V sum = zero();
    for (int64_t h = most(0, y - half); h < least(g.h, y + half + 1); ++h) {
        V line = zero();
        for (int64_t w = most(0, x - half); w < least(g.w, x + half + 1); ++w) line += term((h * g.w + w) * g.c);
        sum += line;
    }
    return sum;
}

// Within a channel, one row of an image.  scales: out = s, for backward's second pass to read.
void lrn_within(const LrnArgs& g, int64_t row, float* products) {
    const int64_t y = row % g.h, image = row / g.h * g.h * g.w * g.c;
    for (int64_t x = 0; x < g.w; ++x)
        each(0, g.c, [&](int64_t c, auto n) {
            const V sum = around(g, y, x, [&](int64_t at) {
                const V v = load(g.x + image + at + c, n);
                return v * v;
            });
            const V s = fma(splat(g.share), sum, splat(g.shift));
            const int64_t at = image + (y * g.w + x) * g.c + c;
            if (!products) return store(g.out + at, load(g.x + at, n) * power(s, -g.beta), n);
            const int64_t own = (y * g.w + x) * g.c + c;
            store(products + own, load(g.dy + at, n) * load(g.x + at, n) * power(s, -g.beta - 1), n);
            const V straight = load(g.dy + at, n) * power(s, -g.beta);
            store(products + g.h * g.w * g.c + own, straight, n);
        });
}

void lrn_within_back(const LrnArgs& g, int64_t row, const float* products) {
    const int64_t y = row % g.h, image = row / g.h * g.h * g.w * g.c;
    for (int64_t x = 0; x < g.w; ++x)
        each(0, g.c, [&](int64_t c, auto n) {
            const V sum = around(g, y, x, [&](int64_t at) { return load(products + at + c, n); });
            const int64_t own = (y * g.w + x) * g.c + c, at = image + own;
            const V straight = load(products + g.h * g.w * g.c + own, n);
            const V v = straight - splat(2 * g.share * g.beta) * load(g.x + at, n) * sum;
            store(g.out + at, g.accumulate ? load(g.out + at, n) + v : v, n);
        });
}

// -- Interp ---------------------------------------------------------------------------------------------------------

struct Between {  // y = (1 - t) x[low] + t x[high]
    int64_t low, high;
    float t;
};

inline Between between(int64_t i, int64_t first, int64_t size, int64_t out) {
    if (out == 1) return {first, first, 0};
    const int64_t low = i * (size - 1) / (out - 1), rest = i * (size - 1) % (out - 1);
    return {first + low, first + low + (rest > 0),
            static_cast<float>(static_cast<double>(rest) / static_cast<double>(out - 1))};
}

void interp_row(const InterpArgs& g, int64_t row) {
    const Between r = between(row % g.ho, g.first_h, g.size_h, g.ho);
    const float *low = g.in + (row / g.ho * g.h + r.low) * g.w * g.c, *high = low + (r.high - r.low) * g.w * g.c;
    for (int64_t x = 0; x < g.wo; ++x) {
        const Between s = between(x, g.first_w, g.size_w, g.wo);
        const V t = splat(s.t), rest = splat(1 - s.t), u = splat(r.t), less = splat(1 - r.t);
        each(0, g.c, [&](int64_t c, auto n) {
            const V a = load(low + s.low * g.c + c, n) * rest + load(low + s.high * g.c + c, n) * t;
            const V b = load(high + s.low * g.c + c, n) * rest + load(high + s.high * g.c + c, n) * t;
            store(g.out + (row * g.wo + x) * g.c + c, a * less + b * u, n);
        });
    }
}

// The share of output i in input `at`.
inline float share_of(const Between& b, int64_t at) { return (b.low == at ? 1 - b.t : 0) + (b.high == at && b.t > 0 ? b.t : 0); }

// Outputs that may touch input `at` (from `first` on): those strictly between positions at - 1 and at + 1.
inline void touching(int64_t at, int64_t first, int64_t size, int64_t out, int64_t& from, int64_t& till) {
    from = 0, till = out;
    if (at < first || at >= first + size) {
        till = 0;
    } else if (size > 1 && out > 1) {
        const int64_t a = at - first;
        from = most(0, (a - 1) * (out - 1) / (size - 1));
        till = least(out, (a + 1) * (out - 1) / (size - 1) + 1);
    }
}

void interp_back_row(const InterpArgs& g, int64_t row) {
    const int64_t h = row % g.h, image = row / g.h * g.ho;
    int64_t i0, i1;
    touching(h, g.first_h, g.size_h, g.ho, i0, i1);
    for (int64_t w = 0; w < g.w; ++w) {
        int64_t j0, j1;
        touching(w, g.first_w, g.size_w, g.wo, j0, j1);
        float* out = g.out + (row * g.w + w) * g.c;
        if (!g.accumulate) each(0, g.c, [&](int64_t c, auto n) { store(out + c, zero(), n); });
        for (int64_t i = i0; i < i1; ++i) {
            const float down = share_of(between(i, g.first_h, g.size_h, g.ho), h);
            for (int64_t j = j0; j < j1 && down > 0; ++j) {
                const float right = share_of(between(j, g.first_w, g.size_w, g.wo), w);
                if (right == 0) continue;
                const float* dy = g.in + ((image + i) * g.wo + j) * g.c;
                each(0, g.c, [&](int64_t c, auto n) {
                    store(out + c, fma(load(dy + c, n), splat(down * right), load(out + c, n)), n);
                });
            }
        }
    }
}
