// exp, log and friends on a register: polynomials after Cephes (Moshier), within about 2 units in the last place.
// Every operation is lane by lane, so a lane's result does not depend on its neighbours.

inline I bits(V v) { return reinterpret_cast<I>(v); }
inline V floats(I i) { return reinterpret_cast<V>(i); }
inline I splat_int(int32_t x) { return x - I{}; }
inline V pick(I where, V yes, V no) { return where ? yes : no; }

// a > b ? a : b and a < b ? a : b, which is what x86's max and min compute: b where one is NaN
#if defined(__AVX512F__)
inline V larger(V a, V b) { return _mm512_maskz_max_ps(0xffff, a, b); }  // the plain form warns under gcc 12
inline V smaller(V a, V b) { return _mm512_maskz_min_ps(0xffff, a, b); }
#elif defined(__AVX2__)
inline V larger(V a, V b) { return _mm256_max_ps(a, b); }
inline V smaller(V a, V b) { return _mm256_min_ps(a, b); }
#elif defined(__SSE2__)
inline V larger(V a, V b) { return __builtin_ia32_maxps(a, b); }
inline V smaller(V a, V b) { return __builtin_ia32_minps(a, b); }
#else
inline V larger(V a, V b) { return pick(a > b, a, b); }
inline V smaller(V a, V b) { return pick(a < b, a, b); }
#endif
inline V absolute(V v) { return floats(bits(v) & 0x7fffffff); }
inline V with_sign(V size, V sign) { return floats(bits(size) | (bits(sign) & static_cast<int32_t>(0x80000000u))); }

inline V rectified(V v) { return pick(v > zero(), v, pick(v == v, zero(), v)); }  // NaN stays

inline V root(V v) {
#if defined(__AVX512F__)
    return _mm512_maskz_sqrt_ps(0xffff, v);  // as above
#elif defined(__AVX2__)
    return _mm256_sqrt_ps(v);
#elif defined(__aarch64__)
    return vsqrtq_f32(v);
#elif defined(__SSE2__)
    return __builtin_ia32_sqrtps(v);
#else
    for (int i = 0; i < LANES; ++i) v[i] = __builtin_sqrtf(v[i]);
    return v;
#endif
}

// x = n ln 2 + r, |r| <= ln 2 / 2:  exp(x) = 2^n (1 + tail),  tail = exp(r) - 1.  2^n is in two factors, so that the ends
// of the range come out right.
struct Powers {
    V tail, low, high;
};
inline Powers powers(V x) {
    x = smaller(larger(x, splat(-104.0f)), splat(89.0f));
    const V magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer, kept in the low bits
    const V shifted = fma(x, splat(1.44269504f), magic);
    const V n = shifted - magic;
    const V r = fma(n, splat(2.12194440e-4f), fma(n, splat(-0.693359375f), x));
    V p = splat(1.9875691500e-4f);
    p = fma(p, r, splat(1.3981999507e-3f));
    p = fma(p, r, splat(8.3334519073e-3f));
    p = fma(p, r, splat(4.1665795894e-2f));
    p = fma(p, r, splat(1.6666665459e-1f));
    p = fma(p, r, splat(5.0000001201e-1f));
    const I power = bits(shifted) - bits(magic), half = power >> 1;
    return {fma(p, r * r, r), floats((half + 127) << 23), floats((power - half + 127) << 23)};
}

inline V exp(V x) {
    const Powers p = powers(x);
    return pick(x == x, (p.tail + 1.0f) * p.low * p.high, x);
}

inline V exp_minus_1(V x) {
    const Powers p = powers(x);
    const V whole = p.low * p.high;
    return pick(x == x, fma(p.tail, whole, whole - 1.0f), x);
}

// log(x) = e ln 2 + log(m), m in [sqrt 1/2, sqrt 2).  -inf at 0, NaN below; denormals count as the least normal.
inline V log(V x) {
    const V least = splat(1.17549435e-38f);
    const V v = larger(x, least);
    const I exponent = ((bits(v) >> 23) & 0xff) - 126;
    V m = floats((bits(v) & 0x007fffff) | 0x3f000000);  // [1/2, 1)
    const I low = m < splat(0.707106781f);
    const V e = __builtin_convertvector(exponent + low, V);  // a true comparison is -1
    m = pick(low, m + m, m) - 1.0f;
    const V z = m * m;
    V p = splat(7.0376836292e-2f);
    p = fma(p, m, splat(-1.1514610310e-1f));
    p = fma(p, m, splat(1.1676998740e-1f));
    p = fma(p, m, splat(-1.2420140846e-1f));
    p = fma(p, m, splat(1.4249322787e-1f));
    p = fma(p, m, splat(-1.6668057665e-1f));
    p = fma(p, m, splat(2.0000714765e-1f));
    p = fma(p, m, splat(-2.4999993993e-1f));
    p = fma(p, m, splat(3.3333331174e-1f));
    p = p * m * z;
    p = fma(e, splat(-2.12194440e-4f), p);
    p = fma(z, splat(-0.5f), p);
    p = fma(e, splat(0.693359375f), m + p);
    const V infinite = splat(__builtin_inff());
    p = pick(x < zero(), splat(__builtin_nanf("")), p);
    p = pick(x == zero(), -infinite, p);
    return pick(x == infinite, x, pick(x == x, p, x));
}

// log(1 + x) for x >= 0, right also where 1 + x rounds
inline V log_1_plus(V x) {
    const V u = x + 1.0f;
    return log(u) + (x - (u - 1.0f)) / u;
}

// x^e for x > 0; the exponents that LRN uses most go by square roots
inline V power(V x, float e) {
    if (e == -0.75f) {
        const V r = root(x);
        return 1.0f / (r * root(r));
    }
    if (e == -1.75f) {
        const V r = root(x);
        return 1.0f / (r * root(r) * x);
    }
    if (e == -0.5f) return 1.0f / root(x);
    return exp(log(x) * e);
}

inline V sigmoid(V x) { return 1.0f / (1.0f + exp(-x)); }

inline V tanh(V x) {
    const V size = absolute(x), z = x * x;
    V p = splat(-5.70498872745e-3f);
    p = fma(p, z, splat(2.06390887954e-2f));
    p = fma(p, z, splat(-5.37397155531e-2f));
    p = fma(p, z, splat(1.33314422036e-1f));
    p = fma(p, z, splat(-3.33332819422e-1f));
    const V near = fma(p * z, x, x);
    const V far = 1.0f - 2.0f / (exp(size + size) + 1.0f);
    return pick(size < splat(0.625f), near, with_sign(far, x));
}

inline float largest(V v) {
    float lane[LANES];
    store(lane, v);
    float most = lane[0];
    for (int i = 1; i < LANES; ++i) most = lane[i] > most ? lane[i] : most;
    return most;
}

// Bit i of the result: lane i is above zero.
inline uint32_t positive(V v) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask(v, zero(), _CMP_GT_OQ);
#elif defined(__AVX2__)
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(v, zero(), _CMP_GT_OQ)));
#else
    const I above = v > zero();
    uint32_t out = 0;
    for (int i = 0; i < LANES; ++i) out |= (static_cast<uint32_t>(above[i]) & 1u) << i;
    return out;
#endif
}

// -1 in the lanes whose bit is set
inline I lanes_of(uint32_t word) {
    I each;
    for (int i = 0; i < LANES; ++i) each[i] = 1 << i;
    return (splat_int(static_cast<int32_t>(word)) & each) != 0;
}

// LANES bytes as numbers and back.  (GCC 12 takes __builtin_convertvector apart lane by lane where a width has no name.)
typedef uint8_t Bytes __attribute__((vector_size(LANES)));
inline I numbers(Bytes b) {
#if defined(__AVX512F__)
    return reinterpret_cast<I>(_mm512_maskz_cvtepu8_epi32(0xFFFF, reinterpret_cast<__m128i>(b)));
#elif defined(__AVX2__)
    int64_t word;
    __builtin_memcpy(&word, &b, sizeof word);
    return reinterpret_cast<I>(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(word)));
#else
    return __builtin_convertvector(b, I);
#endif
}
inline Bytes low_bytes(I v) {
#if defined(__AVX512F__)
    return reinterpret_cast<Bytes>(_mm512_maskz_cvtepi32_epi8(0xFFFF, reinterpret_cast<__m512i>(v)));
#elif defined(__AVX2__)
    const __m256i each = reinterpret_cast<__m256i>(v);
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(each), _mm256_extracti128_si256(each, 1));
    const int64_t word = _mm_cvtsi128_si64(_mm_packus_epi16(words, words));  // of numbers from 0 to 255
    Bytes b;
    __builtin_memcpy(&b, &word, sizeof b);
    return b;
#else
    return __builtin_convertvector(v, Bytes);
#endif
}
template <class N>
inline I widen(const uint8_t* p, N n) {
    Bytes b{};
    __builtin_memcpy(&b, p, static_cast<size_t>(n));
    return numbers(b);
}
template <class N>
inline void narrow(uint8_t* p, I v, N n) {
    const Bytes b = low_bytes(v);
    __builtin_memcpy(p, &b, static_cast<size_t>(n));
}

// `rest` in the lanes from n on, for sums and maxima across lanes.
inline V fill_tail(V v, All, float) { return v; }
inline V fill_tail(V v, int n, float rest) { return pick(lanes_of((1u << n) - 1), v, splat(rest)); }
template <class N>
inline V clear_tail(V v, N n) {
    return fill_tail(v, n, 0.0f);
}
inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
