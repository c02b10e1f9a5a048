// The transforms of F(2x2, 3x3); lanes are channels.  Each is a matrix from the left and its transpose from the right.

// B' d:  d0 - d2, d1 + d2, d2 - d1, d1 - d3
inline void to_square(V& a, V& b, V& c, V& d) {
    const V p = a - c, q = b + c, r = c - b, s = b - d;
    a = p, b = q, c = r, d = s;
}

// The first pixel of tile `t`, and which image it is in.
inline void place_of(const WinogradTiles& g, int64_t t, int64_t step, int64_t& image, int64_t& y, int64_t& x) {
    const int64_t tile = g.first + t;
    image = tile / (g.down * g.right) * g.h * g.w * g.pixel;
    y = tile / g.right % g.down * step + g.top;
    x = tile % g.right * step + g.left;
}

void winograd_in(const WinogradTiles& g, int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
        int64_t image, y, x;
        place_of(g, t, 2, image, y, x);
        const float* corner = g.in + image + (y * g.w + x) * g.pixel;
        bool inside[4][4];
        for (int i = 0; i < 4; ++i)
            for (int j = 0; j < 4; ++j) inside[i][j] = y + i >= 0 && y + i < g.h && x + j >= 0 && x + j < g.w;
        const bool whole = y >= 0 && x >= 0 && y + 4 <= g.h && x + 4 <= g.w;
        each(0, g.c, [&](int64_t c, auto n) __attribute__((always_inline)) {
            V d[4][4];
            if (whole) {
#pragma GCC unroll 4
                for (int i = 0; i < 4; ++i)
#pragma GCC unroll 4
                    for (int j = 0; j < 4; ++j) d[i][j] = load(corner + (i * g.w + j) * g.pixel + c, n);
            } else {
#pragma GCC unroll 4
                for (int i = 0; i < 4; ++i)
#pragma GCC unroll 4
                    for (int j = 0; j < 4; ++j)
                        d[i][j] = inside[i][j] ? load(corner + (i * g.w + j) * g.pixel + c, n) : zero();
            }
#pragma GCC unroll 4
            for (int j = 0; j < 4; ++j) to_square(d[0][j], d[1][j], d[2][j], d[3][j]);
            float* out = g.squares + t * g.c + c;
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                to_square(d[i][0], d[i][1], d[i][2], d[i][3]);
#pragma GCC unroll 4
                for (int j = 0; j < 4; ++j) store(out + (4 * i + j) * g.pitch, d[i][j], n);
            }
        });
    }
}

// A' m A, with A' = (1 1 1 0 / 0 1 -1 -1): the sums of a tile back to its 2x2 pixels.
void winograd_out(const WinogradTiles& g, int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
        int64_t image, y, x;
        place_of(g, t, 2, image, y, x);
        float* corner = g.out + image + (y * g.w + x) * g.pixel;
        const bool below = y + 1 < g.h, right = x + 1 < g.w;
        each(0, g.c, [&](int64_t c, auto n) __attribute__((always_inline)) {
            const float* in = g.squares + t * g.c + c;
            V top[4], low[4];
#pragma GCC unroll 4
            for (int j = 0; j < 4; ++j) {
                const V a = load(in + j * g.pitch, n), b = load(in + (4 + j) * g.pitch, n);
                const V d = load(in + (8 + j) * g.pitch, n), e = load(in + (12 + j) * g.pitch, n);
                top[j] = a + b + d, low[j] = b - d - e;
            }
            const V bias = g.bias ? load(g.bias + c, n) : zero();
            const auto put = [&](int64_t at, V v) __attribute__((always_inline)) {
                v = g.accumulate ? load(corner + at + c, n) + v : v + bias;
                store(corner + at + c, g.relu ? rectified(v) : v, n);
            };
            put(0, top[0] + top[1] + top[2]);
            if (right) put(g.pixel, top[1] - top[2] - top[3]);
            if (below) put(g.w * g.pixel, low[0] + low[1] + low[2]);
            if (right && below) put((g.w + 1) * g.pixel, low[1] - low[2] - low[3]);
        });
    }
}

// A dy A': the 2x2 pixels of a gradient's tile to a square; pixels outside count as zeros.
void winograd_spread(const WinogradTiles& g, int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
        int64_t image, y, x;
        place_of(g, t, 2, image, y, x);
        const float* corner = g.in + image + (y * g.w + x) * g.pixel;
        const bool below = y + 1 < g.h, right = x + 1 < g.w;
        each(0, g.c, [&](int64_t c, auto n) __attribute__((always_inline)) {
            const V a = load(corner + c, n), b = right ? load(corner + g.pixel + c, n) : zero();
            const V d = below ? load(corner + g.w * g.pixel + c, n) : zero();
            const V e = right && below ? load(corner + (g.w + 1) * g.pixel + c, n) : zero();
            const V rows[4][2] = {{a, b}, {a + d, b + e}, {a - d, b - e}, {-d, -e}};
            float* out = g.squares + t * g.c + c;
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                store(out + (4 * i) * g.pitch, rows[i][0], n);
                store(out + (4 * i + 1) * g.pitch, rows[i][0] + rows[i][1], n);
                store(out + (4 * i + 2) * g.pitch, rows[i][0] - rows[i][1], n);
                store(out + (4 * i + 3) * g.pitch, -rows[i][1], n);
            }
        });
    }
}

// G g G', with G = (1 0 0 / .5 .5 .5 / .5 -.5 .5 / 0 0 1), of one window's LANES channels; turned: rotated by 180 degrees.
template <class N>
inline void window_square(V (&u)[4][4], const float* w, int64_t c, bool turned, N n) {
    V rows[4][3];
#pragma GCC unroll 3
    for (int j = 0; j < 3; ++j) {
        const int at = turned ? 2 - j : j;
        const V a = load(w + (turned ? 6 + at : at) * c, n), b = load(w + (3 + at) * c, n);
        const V d = load(w + (turned ? at : 6 + at) * c, n), half = (a + d) * 0.5f;
        rows[0][j] = a, rows[1][j] = half + b * 0.5f, rows[2][j] = half - b * 0.5f, rows[3][j] = d;
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        const V half = (rows[i][0] + rows[i][2]) * 0.5f, middle = rows[i][1] * 0.5f;
        u[i][0] = rows[i][0], u[i][1] = half + middle, u[i][2] = half - middle, u[i][3] = rows[i][2];
    }
}

// Forward: for element f of the squares, packed[f * pitch + step c of the panel][column k], k from `column` on.
void winograd_pack_columns(const WinogradWeights& g, float* packed, int64_t pitch, int64_t column, int64_t columns,
                           int64_t width) {
    constexpr int64_t MOST = MAX_VECTORS * LANES;
    float block[SQUARE][MOST * LANES];  // [column][channel]
    for (int64_t c = 0; c < g.c; c += LANES) {
        const int n = static_cast<int>(least(LANES, g.c - c));
        for (int64_t j = 0; j < columns; ++j) {
            V u[4][4];
            window_square(u, g.w + (column + j) * 9 * g.c + c, g.c, false, n);
            for (int f = 0; f < SQUARE; ++f) store(block[f] + j * LANES, u[f / 4][f % 4]);
        }
        for (int f = 0; f < SQUARE; ++f)
            pack_columns(packed + f * pitch + c * width, block[f], LANES, n, columns, width);
    }
}

// Data gradient: packed[f * pitch + step k of the panel][column c], for k in [begin, end).
void winograd_pack_rows(const WinogradWeights& g, float* packed, int64_t pitch, int64_t column, int64_t columns,
                        int64_t width, int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k)
        for (int64_t j = 0; j < width; j += LANES) {
            V u[4][4];
            const int n = static_cast<int>(most(0, least(LANES, columns - j)));
            window_square(u, g.w + k * 9 * g.c + column + j, g.c, true, n);
#pragma GCC unroll 16
            for (int f = 0; f < SQUARE; ++f) store(packed + f * pitch + k * width + j, u[f / 4][f % 4]);
        }
}

// dw = G' u G for k in [begin, end)
void winograd_weights(const WinogradWeights& g, int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k)
        each(0, g.c, [&](int64_t c, auto n) __attribute__((always_inline)) {
            V rows[3][4];
#pragma GCC unroll 4
            for (int j = 0; j < 4; ++j) {
                V u[4];
#pragma GCC unroll 4
                for (int i = 0; i < 4; ++i) u[i] = load(g.squares + ((4 * i + j) * g.k + k) * g.c + c, n);
                const V sum = (u[1] + u[2]) * 0.5f;
                rows[0][j] = u[0] + sum, rows[1][j] = (u[1] - u[2]) * 0.5f, rows[2][j] = sum + u[3];
            }
#pragma GCC unroll 3
            for (int i = 0; i < 3; ++i) {
                const V sum = (rows[i][1] + rows[i][2]) * 0.5f;
                const V taps[3] = {rows[i][0] + sum, (rows[i][1] - rows[i][2]) * 0.5f, sum + rows[i][3]};
#pragma GCC unroll 3
                for (int j = 0; j < 3; ++j) {
                    float* out = g.dw + ((k * 3 + i) * 3 + j) * g.c + c;
                    store(out, g.accumulate ? load(out, n) + taps[j] : taps[j], n);
                }
            }
        });
}
