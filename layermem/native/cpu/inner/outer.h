// The tile of an OuterBlock: TALL rows (broadcast from d) by WIDE registers (loaded from x) of sums.

template <int TALL, int WIDE>
void outer_tile(const OuterBlock& g, int64_t k, int64_t c, int last) {
    V sum[TALL][WIDE];
    float* out = g.out + k * g.pitch + c;
    const bool whole = last == LANES;
    if (g.start == Start::out) {
#pragma GCC unroll 24
        for (int i = 0; i < TALL; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < WIDE; ++j) {
                const float* at = out + i * g.pitch + j * LANES;
                sum[i][j] = j + 1 < WIDE || whole ? load(at) : load(at, last);
            }
    } else {
#pragma GCC unroll 24
        for (int i = 0; i < TALL; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < WIDE; ++j) sum[i][j] = zero();
    }
    const auto step = [&](const V(&x)[WIDE], const float* d) __attribute__((always_inline)) {
#pragma GCC unroll 24
        for (int i = 0; i < TALL; ++i) {
            const V y = splat(d[i]);
#pragma GCC unroll 4
            for (int j = 0; j < WIDE; ++j) sum[i][j] = fma(y, x[j], sum[i][j]);
        }
    };
    if (whole) {
        for (int64_t n = 0; n < g.count; ++n) {
            const float* at = g.x[n] + c;
            V x[WIDE];
#pragma GCC unroll 4
            for (int j = 0; j < WIDE; ++j) x[j] = load(at + j * LANES);
            step(x, g.d[n] + k);
        }
    } else {
        for (int64_t n = 0; n < g.count; ++n) {
            const float* at = g.x[n] + c;
            V x[WIDE];
#pragma GCC unroll 4
            for (int j = 0; j < WIDE; ++j) x[j] = j + 1 < WIDE ? load(at + j * LANES) : load(at + j * LANES, last);
            step(x, g.d[n] + k);
        }
    }
#pragma GCC unroll 24
    for (int i = 0; i < TALL; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < WIDE; ++j) {
            float* at = out + i * g.pitch + j * LANES;
            j + 1 < WIDE || whole ? store(at, sum[i][j]) : store(at, sum[i][j], last);
        }
}

// The rows left over below the last full tile get a tile of exactly their height.
template <int TALL, int WIDE>
void outer_rest(const OuterBlock& g, int64_t k, int64_t c, int last) {
    if constexpr (TALL > 0) {
        if (g.rows - k == TALL) return outer_tile<TALL, WIDE>(g, k, c, last);
        outer_rest<TALL - 1, WIDE>(g, k, c, last);
    }
}

template <int TALL, int WIDE>
void outer_panel(const OuterBlock& g, int64_t c, int last) {
    int64_t k = 0;
    for (; k + TALL <= g.rows; k += TALL) outer_tile<TALL, WIDE>(g, k, c, last);
    outer_rest<TALL - 1, WIDE>(g, k, c, last);
}

void outer(const OuterBlock& g) {
    const int64_t registers = (g.columns + LANES - 1) / LANES, panels = (registers + MAX_VECTORS - 1) / MAX_VECTORS;
    for (int64_t p = 0, v = 0; p < panels; ++p) {
        const int64_t wide = (registers - v + panels - p - 1) / (panels - p), c = v * LANES;
        v += wide;
        const int last = static_cast<int>(v * LANES <= g.columns ? LANES : g.columns - (v - 1) * LANES);
        if constexpr (REGISTERS == 32) {
            switch (wide) {
                case 1: outer_panel<12, 1>(g, c, last); break;
                case 2: outer_panel<12, 2>(g, c, last); break;
                case 3: outer_panel<8, 3>(g, c, last); break;
                default: outer_panel<6, 4>(g, c, last); break;
            }
        } else if (wide == 1) {
            outer_panel<6, 1>(g, c, last);
        } else {
            outer_panel<6, 2>(g, c, last);
        }
    }
}

template <int SIZE, class N>
inline __attribute__((always_inline)) void add_columns(float* out, const float* in, int64_t pitch, int64_t rows,
                                                       bool more, N n, Group<SIZE>) {
    V sum[SIZE];
#pragma GCC unroll 4
    for (int i = 0; i < SIZE; ++i) sum[i] = zero();
    for (int64_t r = 0; r < rows; ++r)
#pragma GCC unroll 4
        for (int i = 0; i < SIZE; ++i) sum[i] += load(in + r * pitch + i * LANES, n);
#pragma GCC unroll 4
    for (int i = 0; i < SIZE; ++i) store(out + i * LANES, more ? load(out + i * LANES, n) + sum[i] : sum[i], n);
}

// out (+)= the sum of `rows` rows of `in`, column by column, in blocks of 64 whose sums are added
void add_rows(float* out, const float* in, int64_t pitch, int64_t rows, int64_t columns, Start start) {
    for (int64_t block = 0; block < rows; block += 64) {
        const int64_t till = least(rows, block + 64);
        const bool more = block > 0 || start == Start::out;
        each_group(0, columns, [&](int64_t c, auto n, auto group) __attribute__((always_inline)) {
            add_columns(out + c, in + block * pitch + c, pitch, till - block, more, n, group);
        });
    }
}
