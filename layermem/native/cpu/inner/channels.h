// Lines of [outer][channels][inner]: along channels where inner is 1, else along inner within one channel.
// `value(p)` is what body gets for p[channel]: a register of neighbours, or one number in all lanes.

template <class Body>
inline __attribute__((always_inline)) void along(const Channels& s, int64_t begin, int64_t end, const Body& body) {
    if (s.inner == 1) {
        for (int64_t line = begin; line < end; ++line)
            each(0, s.channels, [&](int64_t c, auto n) __attribute__((always_inline)) {
                body(line * s.channels + c, n,
                     [&](const float* p) __attribute__((always_inline)) { return load(p + c, n); });
            });
        return;
    }
    for (int64_t line = begin; line < end; ++line) {
        const int64_t c = line % s.channels;
        each(0, s.inner, [&](int64_t i, auto n) __attribute__((always_inline)) {
            body(line * s.inner + i, n, [&](const float* p) __attribute__((always_inline)) { return splat(p[c]); });
        });
    }
}

void blend(const BlendArgs& g, int64_t begin, int64_t end) {
    const auto run = [&](const auto& f) __attribute__((always_inline)) {
        along(g.shape, begin, end, [&](int64_t i, auto n, const auto& value) __attribute__((always_inline)) {
            const V v = f(load(g.a + i, n), i, n, value);
            store(g.out + i, g.accumulate ? load(g.out + i, n) + v : v, n);
        });
    };
    switch (g.blend) {
        case Blend::affine:
            if (g.g) return run([&](V a, int64_t, auto, const auto& at) { return a * at(g.f) + at(g.g); });
            return run([&](V a, int64_t, auto, const auto& at) { return a * at(g.f); });
        case Blend::shift: return run([&](V a, int64_t, auto, const auto& at) { return a + at(g.g); });
        case Blend::normalize: return run([&](V a, int64_t, auto, const auto& at) { return (a - at(g.f)) * at(g.g); });
        case Blend::fused:
            return run([&](V a, int64_t, auto, const auto& at) {
                const V y = fma(a - at(g.f), at(g.h), at(g.g));
                return g.relu ? rectified(y) : y;
            });
        case Blend::fused_dx:
            return run([&](V a, int64_t i, auto n, const auto& at) {
                const V x = load(g.b + i, n) - at(g.g);
                if (g.relu) a = pick(fma(x, at(g.h), at(g.e)) > zero(), a, zero());
                return at(g.h) * (a - at(g.f) - x * at(g.k));
            });
        case Blend::gradient:
            return run([&](V a, int64_t i, auto n, const auto& at) {
                return at(g.h) * (a - at(g.f) - (load(g.b + i, n) - at(g.g)) * at(g.k));
            });
        case Blend::prelu:
            return run([&](V a, int64_t, auto, const auto& at) { return pick(a > zero(), a, at(g.f) * a); });
        case Blend::prelu_dx:
            return run([&](V a, int64_t i, auto n, const auto& at) {
                return pick(load(g.b + i, n) > zero(), a, at(g.f) * a);
            });
    }
}

// Sums are taken over blocks of SUM_LINES lines, which stay in cache for all channels, and the blocks' sums are added.
constexpr int64_t SUM_LINES = 64;

// Lines [begin, end) of SIZE registers of columns, added to what `more` says is there.
template <int SIZE, class N, class Terms>
inline __attribute__((always_inline)) void sum_columns(const Channels& s, int64_t c, N n, Group<SIZE>, int64_t begin,
                                                       int64_t end, bool more, float* out0, float* out1,
                                                       const Terms& terms) {
    V sum0[SIZE], sum1[SIZE];
#pragma GCC unroll 4
    for (int i = 0; i < SIZE; ++i) sum0[i] = sum1[i] = zero();
    for (int64_t line = begin; line < end; ++line)
#pragma GCC unroll 4
        for (int i = 0; i < SIZE; ++i) {
            const int64_t at = c + i * LANES;
            const auto value = [&](const float* p) __attribute__((always_inline)) { return load(p + at, n); };
            terms(line * s.channels + at, n, value, sum0[i], sum1[i]);
        }
#pragma GCC unroll 4
    for (int i = 0; i < SIZE; ++i) {
        const int64_t at = c + i * LANES;
        store(out0 + at, more ? load(out0 + at, n) + sum0[i] : sum0[i], n);
        if (out1) store(out1 + at, more ? load(out1 + at, n) + sum1[i] : sum1[i], n);
    }
}

// out0[c] = sum of first(...), out1[c] = sum of second(...) over lines of `outer` in [begin, end)
template <class Terms>
inline __attribute__((always_inline)) void sum_terms(const SumArgs& g, int64_t begin, int64_t end, float* out0,
                                                     float* out1, const Terms& terms) {
    const Channels& s = g.shape;
    if (s.inner == 1) {
        for (int64_t block = begin; block < end; block += SUM_LINES)
            each_group(0, s.channels, [&](int64_t c, auto n, auto group) __attribute__((always_inline)) {
                sum_columns(s, c, n, group, block, least(end, block + SUM_LINES), block > begin, out0, out1, terms);
            });
        return;
    }
    for (int64_t c = 0; c < s.channels; ++c) {
        float all0 = 0, all1 = 0;
        const auto value = [&](const float* p) __attribute__((always_inline)) { return splat(p[c]); };
        for (int64_t o = begin; o < end; ++o) {
            const int64_t first = (o * s.channels + c) * s.inner;
            for (int64_t block = 0; block < s.inner; block += SUM_LINES * LANES) {
                V sum0 = zero(), sum1 = zero();
                each(block, least(s.inner, block + SUM_LINES * LANES),
                     [&](int64_t i, auto n) __attribute__((always_inline)) {
                         V term0 = zero(), term1 = zero();
                         terms(first + i, n, value, term0, term1);
                         sum0 += clear_tail(term0, n), sum1 += clear_tail(term1, n);
                     });
                all0 += total(sum0), all1 += total(sum1);
            }
        }
        out0[c] = all0;
        if (out1) out1[c] = all1;
    }
}

// Mean and sum of squared differences of `added` numbers join those of `before` numbers (Chan et al. 1979).
inline void join(V& mean, V& m2, float before, V mean_added, V m2_added, float added) {
    const V gap = mean_added - mean;
    const float share = added / (before + added);
    mean += gap * share;
    m2 += m2_added + gap * gap * (before * share);
}

template <int SIZE, class N>
inline __attribute__((always_inline)) void moments_of_columns(const SumArgs& g, int64_t c, N n, Group<SIZE>,
                                                              int64_t begin, int64_t end, int64_t before) {
    const int64_t channels = g.shape.channels;
    const float count = static_cast<float>(end - begin);
    V middle[SIZE], squares[SIZE];
#pragma GCC unroll 4
    for (int i = 0; i < SIZE; ++i) middle[i] = squares[i] = zero();
    for (int64_t line = begin; line < end; ++line)
#pragma GCC unroll 4
        for (int i = 0; i < SIZE; ++i) middle[i] += load(g.a + line * channels + c + i * LANES, n);
#pragma GCC unroll 4
    for (int i = 0; i < SIZE; ++i) middle[i] /= count;
    for (int64_t line = begin; line < end; ++line)
#pragma GCC unroll 4
        for (int i = 0; i < SIZE; ++i) {
            const V d = load(g.a + line * channels + c + i * LANES, n) - middle[i];
            squares[i] += d * d;
        }
#pragma GCC unroll 4
    for (int i = 0; i < SIZE; ++i) {
        float *mean_at = g.out + c + i * LANES, *m2_at = mean_at + channels;
        V mean = before ? load(mean_at, n) : zero(), m2 = before ? load(m2_at, n) : zero();
        join(mean, m2, static_cast<float>(before), middle[i], squares[i], count);
        store(mean_at, mean, n);
        store(m2_at, m2, n);
    }
}

// Block by block: the mean of a block, then squares around it while the block is in cache; never E[x^2] - E[x]^2.
void moments(const SumArgs& g, int64_t begin, int64_t end) {
    const Channels& s = g.shape;
    if (s.inner == 1) {
        for (int64_t block = begin; block < end; block += SUM_LINES)
            each_group(0, s.channels, [&](int64_t c, auto n, auto group) __attribute__((always_inline)) {
                moments_of_columns(g, c, n, group, block, least(end, block + SUM_LINES), block - begin);
            });
        return;
    }
    for (int64_t c = 0; c < s.channels; ++c) {
        V mean = zero(), m2 = zero();
        for (int64_t o = begin; o < end; ++o) {
            const float* x = g.a + (o * s.channels + c) * s.inner;
            V sum = zero(), squares = zero();
            each(0, s.inner, [&](int64_t i, auto n) { sum += load(x + i, n); });
            const float middle = total(sum) / static_cast<float>(s.inner);
            each(0, s.inner, [&](int64_t i, auto n) {
                const V d = clear_tail(load(x + i, n) - middle, n);
                squares += d * d;
            });
            join(mean, m2, static_cast<float>((o - begin) * s.inner), splat(middle), splat(total(squares)),
                 static_cast<float>(s.inner));
        }
        g.out[c] = mean[0];
        g.out[s.channels + c] = m2[0];
    }
}

void channel_sum(const SumArgs& g, int64_t begin, int64_t end) {
    float *out0 = g.out, *out1 = g.out + g.shape.channels;
    switch (g.sum) {
        case Sum::moments: return moments(g, begin, end);
        case Sum::plain:
            return sum_terms(g, begin, end, out0, nullptr,
                             [&](int64_t i, auto n, const auto&, V& sum, V&) { sum += load(g.a + i, n); });
        case Sum::product:
            return sum_terms(g, begin, end, out0, out1, [&](int64_t i, auto n, const auto&, V& sum0, V& sum1) {
                const V a = load(g.a + i, n);
                sum0 += a * load(g.b + i, n), sum1 += a;
            });
        case Sum::normalized:
            return sum_terms(g, begin, end, out0, out1, [&](int64_t i, auto n, const auto& at, V& sum0, V& sum1) {
                const V a = load(g.a + i, n);
                sum0 += a * ((load(g.b + i, n) - at(g.f)) * at(g.g)), sum1 += a;
            });
        case Sum::fused:
            return sum_terms(g, begin, end, out0, out1, [&](int64_t i, auto n, const auto& at, V& sum0, V& sum1) {
                const V x = load(g.b + i, n) - at(g.f);
                V a = load(g.a + i, n);
                if (g.relu) a = pick(fma(x, at(g.h), at(g.e)) > zero(), a, zero());
                sum0 += a * (x * at(g.g)), sum1 += a;
            });
        case Sum::prelu:
            return sum_terms(g, begin, end, out0, nullptr, [&](int64_t i, auto n, const auto&, V& sum, V&) {
                sum += load(g.a + i, n) * smaller(load(g.b + i, n), zero());
            });
    }
}
