// Pooling, one row of output pixels at a time; lanes are channels.

// The first maximum in row-major order wins, so `>` and not `>=`.
void max_pool_row(const PoolArgs& a, int64_t row) {
    const Pool& g = a.g;
    const int64_t h0 = row % g.ho * g.sh - g.ph, r0 = most(0, -h0), r1 = least(g.kh, g.h - h0);
    const float* image = a.in + row / g.ho * g.h * g.w * g.c;
    for (int64_t ow = 0; ow < g.wo; ++ow) {
        const int64_t w0 = ow * g.sw - g.pw, s0 = most(0, -w0), s1 = least(g.kw, g.w - w0);
        const int64_t at = (row * g.wo + ow) * g.c;
        each(0, g.c, [&](int64_t c, auto n) {
            V best = splat(-__builtin_inff());
            I where{};
            for (int64_t r = r0; r < r1; ++r) {
                const float* x = image + ((h0 + r) * g.w + w0 + s0) * g.c + c;
                for (int64_t s = s0; s < s1; ++s, x += g.c) {
                    const V v = load(x, n);
                    const I more = v > best;
                    best = pick(more, v, best);
                    where = (more & static_cast<int32_t>(r * g.kw + s)) | (~more & where);
                }
            }
            store(a.out + at + c, best, n);
            if (!a.argmax) return;
            if (g.wide())
                __builtin_memcpy(static_cast<int32_t*>(a.argmax) + at + c, &where, static_cast<size_t>(n) * 4);
            else
                narrow(static_cast<uint8_t*>(a.argmax) + at + c, where, n);
        });
    }
}

// Each dx is gathered from the windows over it, in their order, and written once.
template <class Share>
inline void gather_row(const PoolArgs& a, int64_t row, const Share& share) {
    const Pool& g = a.g;
    const int64_t h = row % g.h + g.ph, n = row / g.h;
    const int64_t oh0 = h < g.kh ? 0 : (h - g.kh) / g.sh + 1, oh1 = least(g.ho, h / g.sh + 1);
    for (int64_t x = 0; x < g.w; ++x) {
        const int64_t w = x + g.pw, ow0 = w < g.kw ? 0 : (w - g.kw) / g.sw + 1, ow1 = least(g.wo, w / g.sw + 1);
        float* out = a.out + (row * g.w + x) * g.c;
        each_group(0, g.c, [&](int64_t c, auto lanes, auto group) __attribute__((always_inline)) {
            constexpr int SIZE = size_of(group);
            V sum[SIZE];
#pragma GCC unroll 4
            for (int i = 0; i < SIZE; ++i) sum[i] = a.accumulate ? load(out + c + i * LANES, lanes) : zero();
            for (int64_t oh = oh0; oh < oh1; ++oh)
                for (int64_t ow = ow0; ow < ow1; ++ow) {
                    const int64_t tap = (h - oh * g.sh) * g.kw + w - ow * g.sw,
                                  at = ((n * g.ho + oh) * g.wo + ow) * g.c + c;
#pragma GCC unroll 4
                    for (int i = 0; i < SIZE; ++i) sum[i] += share(at + i * LANES, tap, oh, ow, lanes);
                }
#pragma GCC unroll 4
            for (int i = 0; i < SIZE; ++i) store(out + c + i * LANES, sum[i], lanes);
        });
    }
}

void max_pool_back_row(const PoolArgs& a, int64_t row) {
    if (a.g.wide())
        return gather_row(
            a, row, [&](int64_t at, int64_t tap, int64_t, int64_t, auto n) __attribute__((always_inline)) {
                I where{};
                __builtin_memcpy(&where, static_cast<const int32_t*>(a.argmax) + at, static_cast<size_t>(n) * 4);
                return pick(where == static_cast<int32_t>(tap), load(a.in + at, n), zero());
            });
    gather_row(a, row, [&](int64_t at, int64_t tap, int64_t, int64_t, auto n) __attribute__((always_inline)) {
        const I where = widen(static_cast<const uint8_t*>(a.argmax) + at, n);
        return pick(where == static_cast<int32_t>(tap), load(a.in + at, n), zero());
    });
}

// Elements of window i, clipped to the padded image: Caffe's divisor.
inline int64_t extent(int64_t i, int64_t stride, int64_t pad, int64_t kernel, int64_t size) {
    const int64_t start = i * stride - pad;
    return least(start + kernel, size + pad) - start;
}

void average_pool_row(const PoolArgs& a, int64_t row) {
    const Pool& g = a.g;
    const int64_t h0 = row % g.ho * g.sh - g.ph, r0 = most(0, -h0), r1 = least(g.kh, g.h - h0);
    const int64_t tall = extent(row % g.ho, g.sh, g.ph, g.kh, g.h);
    const float* image = a.in + row / g.ho * g.h * g.w * g.c;
    for (int64_t ow = 0; ow < g.wo; ++ow) {
        const int64_t w0 = ow * g.sw - g.pw, s0 = most(0, -w0), s1 = least(g.kw, g.w - w0);
        const V divisor = splat(static_cast<float>(tall * extent(ow, g.sw, g.pw, g.kw, g.w)));
        each(0, g.c, [&](int64_t c, auto n) {
            V sum = zero();
            for (int64_t r = r0; r < r1; ++r) {
                V line = zero();
                const float* x = image + ((h0 + r) * g.w + w0 + s0) * g.c + c;
                for (int64_t s = s0; s < s1; ++s, x += g.c) line += load(x, n);
                sum += line;
            }
            store(a.out + (row * g.wo + ow) * g.c + c, sum / divisor, n);
        });
    }
}

void average_pool_back_row(const PoolArgs& a, int64_t row) {
    const Pool& g = a.g;
    gather_row(a, row, [&](int64_t at, int64_t, int64_t oh, int64_t ow, auto n) __attribute__((always_inline)) {
        const int64_t area = extent(oh, g.sh, g.ph, g.kh, g.h) * extent(ow, g.sw, g.pw, g.kw, g.w);
        return load(a.in + at, n) / splat(static_cast<float>(area));
    });
}
