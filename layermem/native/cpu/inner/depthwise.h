// Depthwise convolution, one row of output pixels at a time.

inline int64_t up(int64_t a, int64_t b) { return (a + b - 1) / b; }  // a / b rounded up, a >= 0

template <int WIDE, class N>
inline __attribute__((always_inline)) void depthwise_pixels(const DepthwiseArgs& a, const float* image, int64_t h0,
                                                            int64_t w0, float* out, int64_t c, N n) {
    const Conv& g = a.g;
    V sum[WIDE];
#pragma GCC unroll 4
    for (int i = 0; i < WIDE; ++i)
        sum[i] = a.accumulate ? load(out + i * g.c + c, n) : a.bias ? load(a.bias + c, n) : zero();
    for (int64_t r = 0; r < g.kh; ++r) {
        const int64_t h = h0 + r * g.dh;
        if (h < 0 || h >= g.h) continue;
        for (int64_t s = 0; s < g.kw; ++s) {
            const int64_t w = w0 + s * g.dw;
            if (WIDE == 1 && (w < 0 || w >= g.w)) continue;
            const V f = load(a.w + (r * g.kw + s) * a.pitch + c, n);
            const float* x = image + (h * g.w + w) * g.c + c;
#pragma GCC unroll 4
            for (int i = 0; i < WIDE; ++i) sum[i] = fma(load(x + i * g.sw * g.c, n), f, sum[i]);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < WIDE; ++i) store(out + i * g.c + c, a.relu ? rectified(sum[i]) : sum[i], n);
}

void depthwise_row(const DepthwiseArgs& a, int64_t row) {  // of n * ho
    const Conv& g = a.g;
    const int64_t ho = (g.h + 2 * g.ph - g.dh * (g.kh - 1) - 1) / g.sh + 1;
    const int64_t wo = (g.w + 2 * g.pw - g.dw * (g.kw - 1) - 1) / g.sw + 1;
    const int64_t h0 = row % ho * g.sh - g.ph;
    const float* image = a.in + row / ho * g.h * g.w * g.c;
    for (int64_t ow = 0; ow < wo;) {
        const int64_t w0 = ow * g.sw - g.pw;
        float* out = a.out + (row * wo + ow) * g.c;
        if (w0 >= 0 && ow + 4 <= wo && w0 + 3 * g.sw + (g.kw - 1) * g.dw < g.w) {
            each(0, g.c, [&](int64_t c, auto n) { depthwise_pixels<4>(a, image, h0, w0, out, c, n); });
            ow += 4;
        } else {
            each(0, g.c, [&](int64_t c, auto n) { depthwise_pixels<1>(a, image, h0, w0, out, c, n); });
            ++ow;
        }
    }
}

// Each dx is gathered from the windows over it.
void depthwise_back_row(const DepthwiseArgs& a, int64_t row) {  // of n * h
    const Conv& g = a.g;
    const int64_t ho = (g.h + 2 * g.ph - g.dh * (g.kh - 1) - 1) / g.sh + 1;
    const int64_t wo = (g.w + 2 * g.pw - g.dw * (g.kw - 1) - 1) / g.sw + 1;
    const int64_t h = row % g.h + g.ph, tall = g.dh * (g.kh - 1), wide = g.dw * (g.kw - 1);
    const int64_t oh0 = h < tall ? 0 : up(h - tall, g.sh), oh1 = least(ho, h / g.sh + 1);
    for (int64_t x = 0; x < g.w; ++x) {
        const int64_t w = x + g.pw, ow0 = w < wide ? 0 : up(w - wide, g.sw), ow1 = least(wo, w / g.sw + 1);
        float* out = a.out + (row * g.w + x) * g.c;
        each(0, g.c, [&](int64_t c, auto n) {
            V sum = a.accumulate ? load(out + c, n) : a.bias ? load(a.bias + c, n) : zero();
            for (int64_t oh = oh0; oh < oh1; ++oh) {
                const int64_t r = h - oh * g.sh;
                if (r % g.dh) continue;
                for (int64_t ow = ow0; ow < ow1; ++ow) {
                    const int64_t s = w - ow * g.sw;
                    if (s % g.dw) continue;
                    const V f = load(a.w + (r / g.dh * g.kw + s / g.dw) * a.pitch + c, n);
                    sum = fma(load(a.in + ((row / g.h * ho + oh) * wo + ow) * g.c + c, n), f, sum);
                }
            }
            store(out + c, sum, n);
        });
    }
}

// out[tap][c] = sum of dy x over rows [begin, end) of n * ho
void depthwise_sums(const DepthwiseSums& a, int64_t begin, int64_t end) {
    const Conv& g = a.g;
    const int64_t ho = (g.h + 2 * g.ph - g.dh * (g.kh - 1) - 1) / g.sh + 1;
    const int64_t wo = (g.w + 2 * g.pw - g.dw * (g.kw - 1) - 1) / g.sw + 1;
    for (int64_t i = 0; i < g.kh * g.kw * g.c; ++i) a.out[i] = 0;
    for (int64_t row = begin; row < end; ++row) {
        const float* dy = a.dy + row * wo * g.c;
        for (int64_t r = 0; r < g.kh; ++r) {
            const int64_t h = row % ho * g.sh - g.ph + r * g.dh;
            if (h < 0 || h >= g.h) continue;
            const float* line = a.x + (row / ho * g.h + h) * g.w * g.c;
            for (int64_t s = 0; s < g.kw; ++s) {
                const int64_t shift = s * g.dw - g.pw;
                const int64_t from = shift >= 0 ? 0 : up(-shift, g.sw);
                const int64_t till = shift >= g.w ? 0 : least(wo, (g.w - 1 - shift) / g.sw + 1);
                float* out = a.out + (r * g.kw + s) * g.c;
                each(0, g.c, [&](int64_t c, auto n) {
                    V sum = zero();
                    for (int64_t ow = from; ow < till; ++ow)
                        sum = fma(load(dy + ow * g.c + c, n), load(line + (ow * g.sw + shift) * g.c + c, n), sum);
                    store(out + c, load(out + c, n) + sum, n);
                });
            }
        }
    }
}
