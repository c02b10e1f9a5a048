// Element by element on [begin, end).  Each function's formula is a line of ../map.h.

inline V power_of(V x, float e) {
    if (e == 1.0f) return x;
    if (e == 2.0f) return x * x;
    if (e == 0.5f) return root(x);
    if (e == 0.0f) return splat(1.0f);
    if (e == -1.0f) return 1.0f / x;
    const V size = power(absolute(x), e);
    const V at_zero = splat(e > 0 ? 0.0f : __builtin_inff());
    const int64_t whole = static_cast<int64_t>(e);
    const bool integral = static_cast<float>(whole) == e;
    const V below = !integral ? splat(__builtin_nanf("")) : whole % 2 ? -size : size;
    return pick(x == zero(), at_zero, pick(x < zero(), below, size));
}

template <class F>
void map_one(const Map& g, int64_t begin, int64_t end, const F& f) {
    each(begin, end, [&](int64_t i, auto n) __attribute__((always_inline)) {
        const V v = f(g.a ? load(g.a + i, n) : zero(), g.b ? load(g.b + i, n) : zero());
        store(g.out + i, g.accumulate ? load(g.out + i, n) + v : v, n);
    });
}

void map(const Map& g, int64_t begin, int64_t end) {
    const V p = splat(g.p), q = splat(g.q), r = splat(g.r), one = splat(1.0f);
    const auto run = [&](const auto& f) { map_one(g, begin, end, f); };
    switch (g.op) {
        case Op::fill: return run([&](V, V) { return p; });
        case Op::scale: return run([&](V a, V) { return p * a; });
        case Op::sigmoid: return run([&](V a, V) { return sigmoid(a); });
        case Op::tanh: return run([&](V a, V) { return tanh(a); });
        case Op::elu: return run([&](V a, V) { return pick(a > zero(), a, p * exp_minus_1(a)); });
        case Op::absolute: return run([&](V a, V) { return absolute(a); });
        case Op::exponential: return run([&](V a, V) { return q * exp(p * a); });
        case Op::logarithm: return run([&](V a, V) { return r * log(p * a + q); });
        case Op::power: return run([&](V a, V) { return power_of(q * a + r, g.p); });
        case Op::softplus: return run([&](V a, V) { return larger(a, zero()) + log_1_plus(exp(-absolute(a))); });
        case Op::clip: return run([&](V a, V) { return smaller(larger(a, p), q); });
        case Op::swish: return run([&](V a, V) { return a * sigmoid(p * a); });
        case Op::threshold: return run([&](V a, V) { return pick(a > p, one, zero()); });
        case Op::add: return run([&](V a, V b) { return p * a + q * b; });
        case Op::multiply: return run([&](V a, V b) { return a * b; });
        case Op::relu_slope: return run([&](V a, V b) { return pick(b > zero(), a, g.p == 0 ? zero() : p * a); });
        case Op::sigmoid_slope: return run([&](V a, V b) { return a * b * (one - b); });
        case Op::tanh_slope: return run([&](V a, V b) { return a * (one - b * b); });
        case Op::elu_slope: return run([&](V a, V b) { return pick(b > zero(), a, a * p * exp(b)); });
        case Op::absolute_slope:
            return run([&](V a, V b) { return pick(b > zero(), a, pick(b < zero(), -a, zero())); });
        case Op::exponential_slope: return run([&](V a, V b) { return a * p * b; });
        case Op::logarithm_slope: return run([&](V a, V b) { return a * (r * p) / (p * b + q); });
        case Op::power_slope: return run([&](V a, V b) { return a * (p * q) * power_of(q * b + r, g.p - 1.0f); });
        case Op::softplus_slope: return run([&](V a, V b) { return a * sigmoid(b); });
        case Op::clip_slope: return run([&](V a, V b) { return pick((b >= p) & (b <= q), a, zero()); });
        case Op::swish_slope:
            return run([&](V a, V b) {
                const V s = sigmoid(p * b);
                return a * (s + p * b * s * (one - s));
            });
    }
}

// Sixteen elements at a time, so that a mask is written and read in whole bytes; begin is a multiple of 16.
void relu_forward(const Relu& g, int64_t begin, int64_t end) {
    const V slope = splat(g.slope);
    for (int64_t i = begin; i < end; i += 16) {
        uint32_t word = 0;
        for (int j = 0; j < 16; j += LANES) {
            const int64_t left = end - i - j;
            if (left <= 0) break;
            const V x = load_upto(g.in + i + j, left), y = g.slope == 0 ? rectified(x) : pick(x > zero(), x, slope * x);
            word |= positive(x) << j;
            if (g.out) store_upto(g.out + i + j, y, left);
        }
        if (g.mask) {
            g.mask[i / 8] = static_cast<uint8_t>(word);
            if (end - i > 8) g.mask[i / 8 + 1] = static_cast<uint8_t>(word >> 8);
        }
    }
}

void relu_backward(const Relu& g, int64_t begin, int64_t end) {
    const V slope = splat(g.slope);
    for (int64_t i = begin; i < end; i += 16) {
        uint32_t word = g.mask[i / 8];
        if (end - i > 8) word |= static_cast<uint32_t>(g.mask[i / 8 + 1]) << 8;
        for (int j = 0; j < 16; j += LANES) {
            const int64_t left = end - i - j;
            if (left <= 0) break;
            const V dy = load_upto(g.in + i + j, left);
            V dx = pick(lanes_of(word >> j), dy, g.slope == 0 ? zero() : slope * dy);
            if (g.accumulate) dx += load_upto(g.out + i + j, left);
            store_upto(g.out + i + j, dx, left);
        }
    }
}

// As relu_forward, with the bit set where lowest <= x <= highest.
void clip_forward(const Clip& g, int64_t begin, int64_t end) {
    const V low = splat(g.lowest), high = splat(g.highest);
    for (int64_t i = begin; i < end; i += 16) {
        uint32_t word = 0;
        for (int j = 0; j < 16; j += LANES) {
            const int64_t left = end - i - j;
            if (left <= 0) break;
            const V x = load_upto(g.in + i + j, left);
            const V one = pick((x >= low) & (x <= high), splat(1.0f), zero());
            word |= positive(left < LANES ? clear_tail(one, static_cast<int>(left)) : one) << j;
            store_upto(g.out + i + j, pick(x == x, smaller(larger(x, low), high), x), left);
        }
        g.mask[i / 8] = static_cast<uint8_t>(word);
        if (end - i > 8) g.mask[i / 8 + 1] = static_cast<uint8_t>(word >> 8);
    }
}

void choose_forward(const Choice& g, int64_t begin, int64_t end) {
    each(begin, end, [&](int64_t i, auto n) {
        const V x = load(g.in + i, n);
        if (g.index == 0) {
            store(g.out + i, x, n);
            if (g.winner) narrow(g.winner + i, I{}, n);
            return;
        }
        const V best = load(g.out + i, n);
        const I stays = best > x;
        store(g.out + i, pick(stays, best, x), n);
        if (g.winner) narrow(g.winner + i, (~stays & g.index) | (stays & widen(g.winner + i, n)), n);
    });
}

void choose_backward(const Choice& g, int64_t begin, int64_t end) {
    each(begin, end, [&](int64_t i, auto n) {
        V dx = pick(widen(g.winner + i, n) == g.index, load(g.in + i, n), zero());
        if (g.accumulate) dx += load(g.out + i, n);
        store(g.out + i, dx, n);
    });
}

// Philox4x32-10 (Salmon et al. 2011), LANES / 2 counters side by side: words live in the low halves of 64-bit lanes,
// where a product is 64 bits wide; what is left in the high halves never reaches a low one.
typedef uint64_t W __attribute__((vector_size(4 * LANES)));
constexpr int COUNTERS = LANES / 2;

inline W wide_product(W a, W b) {
#if defined(__AVX512F__)
    return reinterpret_cast<W>(
        _mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
    return reinterpret_cast<W>(_mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#elif defined(__SSE2__)
    return reinterpret_cast<W>(__builtin_ia32_pmuludq128(reinterpret_cast<I>(a), reinterpret_cast<I>(b)));
#else
    return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

// The 2 * LANES words of counters first .. first + COUNTERS - 1, in the order of the elements they belong to.
inline void philox(uint32_t* out, uint64_t first, uint64_t step, const uint32_t key[2]) {
    W c0, even, odd, c1{}, c2 = (step & 0xffffffffu) - W{}, c3 = (step >> 32) - W{};
    for (int i = 0; i < COUNTERS; ++i) {
        c0[i] = first + static_cast<uint64_t>(i);
        even[i] = static_cast<uint64_t>(i / 2 + i % 2 * COUNTERS);
        odd[i] = even[i] + COUNTERS / 2;
    }
    const W by0 = uint64_t{0xD2511F53u} - W{}, by2 = uint64_t{0xCD9E8D57u} - W{};
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        const W m0 = wide_product(by0, c0), m1 = wide_product(by2, c2);
        c0 = (m1 >> 32) ^ c1 ^ (uint64_t{k0} - W{});
        c2 = (m0 >> 32) ^ c3 ^ (uint64_t{k1} - W{});
        c1 = m1;
        c3 = m0;
    }
    const W low = (c0 & 0xffffffffu) | (c1 << 32), high = (c2 & 0xffffffffu) | (c3 << 32);
    const W words[2] = {__builtin_shuffle(low, high, even), __builtin_shuffle(low, high, odd)};
    __builtin_memcpy(out, words, sizeof words);
}

void dropout(const Dropout& g, int64_t begin, int64_t end) {  // begin: a multiple of 64
    const V gain = splat(g.gain);
    typedef uint32_t U __attribute__((vector_size(4 * LANES)));
    for (int64_t base = begin; base < end; base += 2 * LANES) {
        uint32_t words[2 * LANES];
        philox(words, static_cast<uint64_t>(base / 4), g.step, g.key);
        for (int half = 0; half < 2; ++half) {
            const int64_t i = base + half * LANES, left = end - i;
            if (left <= 0) break;
            U word;
            __builtin_memcpy(&word, words + half * LANES, sizeof word);
            const I dropped = word < (g.bound - U{});
            V v = pick(dropped, zero(), gain * load_upto(g.in + i, left));
            if (g.accumulate) v += load_upto(g.out + i, left);
            store_upto(g.out + i, v, left);
        }
    }
}

template <class F>
void update_each(const Update& g, int64_t begin, int64_t end, const F& step) {
    const V gain = splat(g.gain), decay = splat(g.decay), one = splat(1.0f);
    each(begin, end, [&](int64_t i, auto n) __attribute__((always_inline)) {
        V w = load(g.w + i, n), d = gain * load(g.dw + i, n);
        if (g.decay != 0) d += decay * (g.l1 ? pick(w > zero(), one, pick(w < zero(), -one, zero())) : w);
        V h0 = load(g.h0 + i, n), h1 = g.h1 ? load(g.h1 + i, n) : zero();
        step(w, d, h0, h1);
        store(g.w + i, w, n);
        store(g.h0 + i, h0, n);
        if (g.h1) store(g.h1 + i, h1, n);
    });
}

void update(const Update& g, int64_t begin, int64_t end) {
    const V rate = splat(g.rate), m = splat(g.momentum), m2 = splat(g.momentum2), delta = splat(g.delta),
            one = splat(1.0f);
    const auto run = [&](const auto& step) { update_each(g, begin, end, step); };
    switch (g.rule) {
        case Rule::sgd:
            return run([&](V& w, V d, V& h, V&) {
                h = m * h + rate * d;
                w -= h;
            });
        case Rule::nesterov:
            return run([&](V& w, V d, V& h, V&) {
                const V v = m * h + rate * d;
                w -= (one + m) * v - m * h;
                h = v;
            });
        case Rule::adagrad:
            return run([&](V& w, V d, V& h, V&) {
                h += d * d;
                w -= rate * (d / (root(h) + delta));
            });
        case Rule::rmsprop:
            return run([&](V& w, V d, V& h, V&) {
                h = m * h + (one - m) * (d * d);
                w -= rate * (d / (root(h) + delta));
            });
        case Rule::adadelta:
            return run([&](V& w, V d, V& h0, V& h1) {
                h0 = m * h0 + (one - m) * (d * d);
                const V u = d * root((h1 + delta) / (h0 + delta));
                h1 = m * h1 + (one - m) * (u * u);
                w -= rate * u;
            });
        case Rule::adam:
            return run([&](V& w, V d, V& h0, V& h1) {
                h0 = m * h0 + (one - m) * d;
                h1 = m2 * h1 + (one - m2) * (d * d);
                w -= rate * (h0 / (root(h1) + delta));
            });
    }
}

// The sum of squares of [begin, end), in double, lane sums added in one fixed order.
double squares(const float* x, int64_t begin, int64_t end) {
    double sum = 0;
    for (int64_t block = begin; block < end; block += 1024) {
        V part = zero();
        each(block, block + 1024 < end ? block + 1024 : end, [&](int64_t i, auto n) {
            const V v = load(x + i, n);
            part += v * v;
        });
        sum += static_cast<double>(total(part));
    }
    return sum;
}
