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
