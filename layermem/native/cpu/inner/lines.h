// Along one axis: LRN, Interp.

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
    each(0, g.c,
         [&](int64_t i, auto n) { store(scales + i, fma(splat(g.share), load(scales + i, n), splat(g.shift)), n); });
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
inline float share_of(const Between& b, int64_t at) {
    return (b.low == at ? 1 - b.t : 0) + (b.high == at && b.t > 0 ? b.t : 0);
}

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

constexpr int64_t NEAR = 64;
struct Shares {  // the outputs of [from, till) along one axis that an input has a share in
    int64_t count, index[NEAR];
    float share[NEAR];

    void find(int64_t at, int64_t from, int64_t till, int64_t first, int64_t size, int64_t out) {
        count = 0;
        for (int64_t i = from; i < till; ++i) {
            share[count] = share_of(between(i, first, size, out), at), index[count] = i;
            count += share[count] > 0;
        }
    }
};

// out += the outputs that `down` and `right` name, each by both its shares; dy: the first of them, at this channel.
template <int SIZE, class N>
inline __attribute__((always_inline)) void add_shares(float* out, const float* dy, int64_t width, int64_t channels,
                                                      const Shares& down, const Shares& right, N n, Group<SIZE>) {
    V sum[SIZE];
#pragma GCC unroll 4
    for (int k = 0; k < SIZE; ++k) sum[k] = load(out + k * LANES, n);
    for (int64_t i = 0; i < down.count; ++i)
        for (int64_t j = 0; j < right.count; ++j) {
            const float* at = dy + (down.index[i] * width + right.index[j]) * channels;
            const V share = splat(down.share[i] * right.share[j]);
#pragma GCC unroll 4
            for (int k = 0; k < SIZE; ++k) sum[k] = fma(load(at + k * LANES, n), share, sum[k]);
        }
#pragma GCC unroll 4
    for (int k = 0; k < SIZE; ++k) store(out + k * LANES, sum[k], n);
}

void interp_back_row(const InterpArgs& g, int64_t row) {
    const int64_t h = row % g.h;
    const float* dy = g.in + row / g.h * g.ho * g.wo * g.c;
    float* out = g.out + row * g.w * g.c;
    Shares down, right;
    int64_t i0, i1, j0, j1;
    touching(h, g.first_h, g.size_h, g.ho, i0, i1);
    if (!g.accumulate) each(0, g.w * g.c, [&](int64_t i, auto n) { store(out + i, zero(), n); });
    for (int64_t i = i0; i < i1; i += NEAR) {
        down.find(h, i, least(i1, i + NEAR), g.first_h, g.size_h, g.ho);
        for (int64_t w = 0; w < g.w && down.count; ++w) {
            touching(w, g.first_w, g.size_w, g.wo, j0, j1);
            for (int64_t j = j0; j < j1; j += NEAR) {
                right.find(w, j, least(j1, j + NEAR), g.first_w, g.size_w, g.wo);
                if (right.count == 0) continue;
                each_group(0, g.c, [&](int64_t c, auto n, auto group) __attribute__((always_inline)) {
                    add_shares(out + w * g.c + c, dy + c, g.wo, g.c, down, right, n, group);
                });
            }
        }
    }
}
