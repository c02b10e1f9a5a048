// The tile of a DotBlock: both operands are contiguous along the reduction, so lanes run along it and nothing is
// packed; the lanes are added up at the end.

template <int TALL, int WIDE>
void dot_tile(const DotBlock& g, int64_t m, int64_t n) {
    V sum[TALL][WIDE];
#pragma GCC unroll 8
    for (int i = 0; i < TALL; ++i)
#pragma GCC unroll 8
        for (int j = 0; j < WIDE; ++j) sum[i][j] = zero();
    const float* a[TALL];
    const float* b[WIDE];
#pragma GCC unroll 8
    for (int i = 0; i < TALL; ++i) a[i] = g.a + (m + i) * g.a_pitch;
#pragma GCC unroll 8
    for (int j = 0; j < WIDE; ++j) b[j] = g.b + (n + j) * g.b_pitch;
    int64_t k = 0;
    for (; k + LANES <= g.length; k += LANES) {
        V x[TALL];
#pragma GCC unroll 8
        for (int i = 0; i < TALL; ++i) x[i] = load(a[i] + k);
#pragma GCC unroll 8
        for (int j = 0; j < WIDE; ++j) {
            const V w = load(b[j] + k);
#pragma GCC unroll 8
            for (int i = 0; i < TALL; ++i) sum[i][j] = fma(x[i], w, sum[i][j]);
        }
    }
    if (const int rest = static_cast<int>(g.length - k)) {
#pragma GCC unroll 8
        for (int j = 0; j < WIDE; ++j) {
            const V w = load(b[j] + k, rest);
#pragma GCC unroll 8
            for (int i = 0; i < TALL; ++i) sum[i][j] = fma(load(a[i] + k, rest), w, sum[i][j]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < TALL; ++i)
#pragma GCC unroll 8
        for (int j = 0; j < WIDE; ++j) {
            float* out = g.out + (m + i) * g.pitch + n + j;
            const float first = g.start == Start::out ? *out : g.start == Start::bias ? g.bias[n + j] : 0.0f;
            const float all = first + total(sum[i][j]);
            *out = g.relu && all < 0 ? 0 : all;
        }
}

template <int TALL, int WIDE>
void dot_columns(const DotBlock& g, int64_t m) {
    int64_t n = 0;
    for (; n + WIDE <= g.columns; n += WIDE) dot_tile<TALL, WIDE>(g, m, n);
    for (; n < g.columns; ++n) dot_tile<TALL, 1>(g, m, n);
}

void dot(const DotBlock& g) {
    constexpr int TALL = REGISTERS == 32 ? 4 : 3, WIDE = REGISTERS == 32 ? 6 : 4;
    int64_t m = 0;
    for (; m + TALL <= g.rows; m += TALL) dot_columns<TALL, WIDE>(g, m);
    for (; m < g.rows; ++m) dot_columns<1, WIDE>(g, m);
}

// Register i of a pair of which n < 2 LANES floats are in use, or all.
inline V load_part(const float* p, int i, All) { return load(p + i * LANES); }
inline V load_part(const float* p, int i, int n) {
    const int left = n - i * LANES;
    return left >= LANES ? load(p + i * LANES) : left > 0 ? load(p + i * LANES, left) : zero();
}
inline void store_part(float* p, V v, int i, All) { store(p + i * LANES, v); }
inline void store_part(float* p, V v, int i, int n) {
    const int left = n - i * LANES;
    if (left > 0) store_upto(p + i * LANES, v, left);
}

// A strip of a RankBlock: DEEP rows of w by two registers stay in place while all rows of d go by.
template <int DEEP, class N>
inline __attribute__((always_inline)) void rank_strip(const RankBlock& g, int64_t j, int64_t c, bool add, N n) {
    constexpr int WIDE = 2;
    V w[DEEP][WIDE];
#pragma GCC unroll 8
    for (int k = 0; k < DEEP; ++k)
#pragma GCC unroll 2
        for (int i = 0; i < WIDE; ++i) w[k][i] = load_part(g.w + (j + k) * g.w_pitch + c, i, n);
    for (int64_t m = 0; m < g.rows; ++m) {
        float* out = g.out + m * g.pitch + c;
        const float* d = g.d + m * g.d_pitch + j;
        V sum[WIDE];
#pragma GCC unroll 2
        for (int i = 0; i < WIDE; ++i) sum[i] = add ? load_part(out, i, n) : zero();
#pragma GCC unroll 8
        for (int k = 0; k < DEEP; ++k) {
            const V x = splat(d[k]);
#pragma GCC unroll 2
            for (int i = 0; i < WIDE; ++i) sum[i] = fma(x, w[k][i], sum[i]);
        }
#pragma GCC unroll 2
        for (int i = 0; i < WIDE; ++i) store_part(out, sum[i], i, n);
    }
}

template <int DEEP>
void rank_rows(const RankBlock& g, int64_t j, bool add) {
    int64_t c = 0;
    for (; c + 2 * LANES <= g.columns; c += 2 * LANES) rank_strip<DEEP>(g, j, c, add, All{});
    if (c < g.columns) rank_strip<DEEP>(g, j, c, add, static_cast<int>(g.columns - c));
}

void rank(const RankBlock& g) {
    constexpr int STEP = REGISTERS == 32 ? 8 : 4;
    int64_t j = 0;
    for (; j + STEP <= g.depth; j += STEP) rank_rows<STEP>(g, j, j > 0 || g.start == Start::out);
    for (; j < g.depth; ++j) rank_rows<1>(g, j, j > 0 || g.start == Start::out);
}
