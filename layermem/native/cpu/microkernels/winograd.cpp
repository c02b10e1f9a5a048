// The transforms of F(2x2, 3x3): a matrix from the left and its transpose from the right, here ' for the transpose.
//
//          1  0 -1  0           1  0  0               1  0
//     B' = 0  1  1  0      G = .5 .5 .5          A =  1  1
//          0 -1  1  0          .5 -.5 .5              1 -1
//          0  1  0 -1           0  0  1               0 -1
//
// Products with these matrices are additions and halvings only.  Lanes are channels.  A transformed tile has 16
// elements, each in a plane of its own: [16][tiles][c].  A plane is then the left operand of one matrix product.
#include "cpu/microkernels/winograd.h"

#include "cpu/isa/simd_math.h"
#include "cpu/microkernels/pack.h"

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

// One column of B' d, in place:  d0 - d2, d1 + d2, d2 - d1, d1 - d3
inline void transform_four(V& a, V& b, V& c, V& d) {
    const V p = a - c, q = b + c, r = c - b, s = b - d;
    a = p;
    b = q;
    c = r;
    d = s;
}

// The first pixel (y, x) of tile `t`, which may lie outside the image, and the offset of its image in floats.
inline void first_pixel(const WinogradTiles& args, int64_t t, int64_t step, int64_t& image, int64_t& y, int64_t& x) {
    const int64_t tile = args.first + t;
    image = tile / (args.tiles_h * args.tiles_w) * args.h * args.w * args.pixel;
    y = tile / args.tiles_w % args.tiles_h * step + args.top;
    x = tile % args.tiles_w * step + args.left;
}

// B' d B of 4x4 pixels; pixels outside the image are zeros.
void transform_input(const WinogradTiles& args, int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
        int64_t image, y, x;
        first_pixel(args, t, 2, image, y, x);
        const float* corner = args.in + image + (y * args.w + x) * args.pixel;
        bool inside[4][4];
        for (int i = 0; i < 4; ++i)
            for (int j = 0; j < 4; ++j) inside[i][j] = y + i >= 0 && y + i < args.h && x + j >= 0 && x + j < args.w;
        const bool whole = y >= 0 && x >= 0 && y + 4 <= args.h && x + 4 <= args.w;
        for_each_vector(0, args.c, [&](int64_t c, auto n) __attribute__((always_inline)) {
            V d[4][4];  // 16 registers: all of AVX2's, so there some are spilled
            if (whole) {
#pragma GCC unroll 4
                for (int i = 0; i < 4; ++i)
#pragma GCC unroll 4
                    for (int j = 0; j < 4; ++j) d[i][j] = load(corner + (i * args.w + j) * args.pixel + c, n);
            } else {
#pragma GCC unroll 4
                for (int i = 0; i < 4; ++i)
#pragma GCC unroll 4
                    for (int j = 0; j < 4; ++j)
                        d[i][j] = inside[i][j] ? load(corner + (i * args.w + j) * args.pixel + c, n) : zero();
            }
#pragma GCC unroll 4
            for (int j = 0; j < 4; ++j) transform_four(d[0][j], d[1][j], d[2][j], d[3][j]);
            float* out = args.tiles + t * args.c + c;
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                transform_four(d[i][0], d[i][1], d[i][2], d[i][3]);
#pragma GCC unroll 4
                for (int j = 0; j < 4; ++j) store(out + (4 * i + j) * args.pitch, d[i][j], n);
            }
        });
    }
}

// A' m A: the products of a tile to its 2x2 pixels, with the epilogue (bias or accumulate, relu).  With m in rows of
// four, A' m is two rows, top and low; then the same from the right.  Pixels beyond an odd border are not stored.
void transform_output(const WinogradTiles& args, int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
        int64_t image, y, x;
        first_pixel(args, t, 2, image, y, x);
        float* corner = args.out + image + (y * args.w + x) * args.pixel;
        const bool below = y + 1 < args.h, right = x + 1 < args.w;
        for_each_vector(0, args.c, [&](int64_t c, auto n) __attribute__((always_inline)) {
            const float* in = args.tiles + t * args.c + c;
            V top[4], low[4];
#pragma GCC unroll 4
            for (int j = 0; j < 4; ++j) {
                const V a = load(in + j * args.pitch, n), b = load(in + (4 + j) * args.pitch, n);
                const V d = load(in + (8 + j) * args.pitch, n), e = load(in + (12 + j) * args.pitch, n);
                top[j] = a + b + d;
                low[j] = b - d - e;
            }
            const V bias = args.bias ? load(args.bias + c, n) : zero();
            const auto put = [&](int64_t at, V v) __attribute__((always_inline)) {
                v = args.accumulate ? load(corner + at + c, n) + v : v + bias;
                store(corner + at + c, args.relu ? relu(v) : v, n);
            };
            put(0, top[0] + top[1] + top[2]);
            if (right) put(args.pixel, top[1] - top[2] - top[3]);
            if (below) put(args.w * args.pixel, low[0] + low[1] + low[2]);
            if (right && below) put((args.w + 1) * args.pixel, low[1] - low[2] - low[3]);
        });
    }
}

// A dy A' of 2x2 pixels of a gradient; pixels outside the image are zeros.
void transform_dy(const WinogradTiles& args, int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
        int64_t image, y, x;
        first_pixel(args, t, 2, image, y, x);
        const float* corner = args.in + image + (y * args.w + x) * args.pixel;
        const bool below = y + 1 < args.h, right = x + 1 < args.w;
        for_each_vector(0, args.c, [&](int64_t c, auto n) __attribute__((always_inline)) {
            const V a = load(corner + c, n), b = right ? load(corner + args.pixel + c, n) : zero();
            const V d = below ? load(corner + args.w * args.pixel + c, n) : zero();
            const V e = right && below ? load(corner + (args.w + 1) * args.pixel + c, n) : zero();
            const V rows[4][2] = {{a, b}, {a + d, b + e}, {a - d, b - e}, {-d, -e}};
            float* out = args.tiles + t * args.c + c;
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                store(out + (4 * i) * args.pitch, rows[i][0], n);
                store(out + (4 * i + 1) * args.pitch, rows[i][0] + rows[i][1], n);
                store(out + (4 * i + 2) * args.pitch, rows[i][0] - rows[i][1], n);
                store(out + (4 * i + 3) * args.pitch, -rows[i][1], n);
            }
        });
    }
}

// u = G g G' of kLanes channels of one window w [3][3][c]; rotate: of the window rotated by 180 degrees.
template <class N>
inline void transform_window(V (&u)[4][4], const float* w, int64_t c, bool rotate, N n) {
    V rows[4][3];
#pragma GCC unroll 3
    for (int j = 0; j < 3; ++j) {
        const int at = rotate ? 2 - j : j;
        const V a = load(w + (rotate ? 6 + at : at) * c, n), b = load(w + (3 + at) * c, n);
        const V d = load(w + (rotate ? at : 6 + at) * c, n), half = (a + d) * 0.5f;
        rows[0][j] = a;
        rows[1][j] = half + b * 0.5f;
        rows[2][j] = half - b * 0.5f;
        rows[3][j] = d;
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        const V half = (rows[i][0] + rows[i][2]) * 0.5f, middle = rows[i][1] * 0.5f;
        u[i][0] = rows[i][0];
        u[i][1] = half + middle;
        u[i][2] = half - middle;
        u[i][3] = rows[i][2];
    }
}

// For element f of the tiles: packed[f * pitch + step c of the panel][column k], with k from `column` on.  kLanes
// channels of each window are transformed to a block [column][channel], which is then packed as a small matrix.
void pack_fprop(const WinogradWeights& args, float* packed, int64_t pitch, int64_t column, int64_t columns,
                int64_t width) {
    constexpr int64_t kMaxColumns = kMaxVectors * kLanes;
    float block[kTileElements][kMaxColumns * kLanes];  // [column][channel]
    for (int64_t c = 0; c < args.c; c += kLanes) {
        const int n = static_cast<int>(min(kLanes, args.c - c));
        for (int64_t j = 0; j < columns; ++j) {
            V u[4][4];
            transform_window(u, args.w + (column + j) * 9 * args.c + c, args.c, false, n);
            for (int f = 0; f < kTileElements; ++f) store(block[f] + j * kLanes, u[f / 4][f % 4]);
        }
        for (int f = 0; f < kTileElements; ++f)
            pack_columns(packed + f * pitch + c * width, block[f], kLanes, n, columns, width);
    }
}

// For element f of the tiles: packed[f * pitch + step k of the panel][column c], for k in [begin, end); c is
// contiguous.
void pack_dgrad(const WinogradWeights& args, float* packed, int64_t pitch, int64_t column, int64_t columns,
                int64_t width, int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k)
        for (int64_t j = 0; j < width; j += kLanes) {
            V u[4][4];
            const int n = static_cast<int>(max(0, min(kLanes, columns - j)));
            transform_window(u, args.w + k * 9 * args.c + column + j, args.c, true, n);
#pragma GCC unroll 16
            for (int f = 0; f < kTileElements; ++f) store(packed + f * pitch + k * width + j, u[f / 4][f % 4]);
        }
}

// dw [3][3][c] = G' u G for k in [begin, end), with u from tiles [16][k][c]: first G' u, one column j at a time, then
// G.
void transform_dw(const WinogradWeights& args, int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k)
        for_each_vector(0, args.c, [&](int64_t c, auto n) __attribute__((always_inline)) {
            V rows[3][4];
#pragma GCC unroll 4
            for (int j = 0; j < 4; ++j) {
                V u[4];
#pragma GCC unroll 4
                for (int i = 0; i < 4; ++i) u[i] = load(args.tiles + ((4 * i + j) * args.k + k) * args.c + c, n);
                const V sum = (u[1] + u[2]) * 0.5f;
                rows[0][j] = u[0] + sum;
                rows[1][j] = (u[1] - u[2]) * 0.5f;
                rows[2][j] = sum + u[3];
            }
#pragma GCC unroll 3
            for (int i = 0; i < 3; ++i) {
                const V sum = (rows[i][1] + rows[i][2]) * 0.5f;
                const V taps[3] = {rows[i][0] + sum, (rows[i][1] - rows[i][2]) * 0.5f, sum + rows[i][3]};
#pragma GCC unroll 3
                for (int j = 0; j < 3; ++j) {
                    float* out = args.dw + ((k * 3 + i) * 3 + j) * args.c + c;
                    store(out, args.accumulate ? load(out, n) + taps[j] : taps[j], n);
                }
            }
        });
}

}  // namespace

const WinogradKernels winograd_kernels = {transform_input, transform_output, transform_dy,
                                          pack_fprop,      pack_dgrad,       transform_dw};

}  // namespace layermem::cpu::LAYERMEM_ISA
