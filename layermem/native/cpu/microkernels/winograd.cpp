// The transforms of Winograd's F(m x m, 3x3): a matrix from the left and its transpose from the right.  Each matrix is a
// function of one line of a tile, here ' for the transpose.  Lanes are channels.  A transformed tile has (m + 2)^2
// elements, each in a plane of its own: [elements][tiles][c].  A plane is then the left operand of one matrix product.
//
// F(2x2, 3x3), of the points 0, 1, -1 and infinity; additions and halvings only:
//
//          1  0 -1  0           1  0  0               1  0
//     B' = 0  1  1  0      G = .5 .5 .5          A =  1  1
//          0 -1  1  0          .5 -.5 .5              1 -1
//          0  1  0 -1           0  0  1               0 -1
//
// F(4x4, 3x3), of the points 0, p, -p, q, -q and infinity with p = 3/4 and q = 3/2.  Rows of B' are the coefficients of
// the polynomial that vanishes at all other points, rows of A the powers of the point, and those of G its powers
// divided by the polynomial's value there:
//
//          ppqq    0  -pp-qq    0  1  0          1/ppqq 0 0            1  0  0   0
//            0  -pqq   -qq      p  1  0          (1  p pp) / P         1  p pp  ppp
//     B' =   0   pqq   -qq     -p  1  0     G =  (1 -p pp) / P    A =  1 -p pp -ppp
//            0  -qpp   -pp      q  1  0          (1  q qq) / Q         1  q qq  qqq
//            0   qpp   -pp     -q  1  0          (1 -q qq) / Q         1 -q qq -qqq
//            0  ppqq     0  -pp-qq 0  1             0   0 1            0  0  0   1
//
//     P = 2 pp (pp - qq),  Q = 2 qq (qq - pp)
//
// The usual points 1 and 2 have two to three times the rounding error; with these it is below twice that of a direct
// sum, and all numbers of B' and A are exact.
#include "cpu/microkernels/winograd.h"

#include "cpu/isa/simd_half.h"
#include "cpu/microkernels/pack.h"

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

struct F2 {
    static constexpr int kOutputs = 2, kSize = 4;

    // B' d, in place
    static LAYERMEM_INLINE void input(V (&d)[4]) {
        const V a = d[0] - d[2], b = d[1] + d[2], c = d[2] - d[1], e = d[1] - d[3];
        d[0] = a;
        d[1] = b;
        d[2] = c;
        d[3] = e;
    }
    // A' m
    static LAYERMEM_INLINE void output(V (&y)[2], const V (&m)[4]) {
        y[0] = m[0] + m[1] + m[2];
        y[1] = m[1] - m[2] - m[3];
    }
    // A dy
    static LAYERMEM_INLINE void gradient(V (&e)[4], const V (&dy)[2]) {
        e[0] = dy[0];
        e[1] = dy[0] + dy[1];
        e[2] = dy[0] - dy[1];
        e[3] = -dy[1];
    }
    // G g
    static LAYERMEM_INLINE void window(V (&u)[4], const V (&g)[3]) {
        const V half = (g[0] + g[2]) * 0.5f, middle = g[1] * 0.5f;
        u[0] = g[0];
        u[1] = half + middle;
        u[2] = half - middle;
        u[3] = g[2];
    }
    // G' u
    static LAYERMEM_INLINE void window_gradient(V (&g)[3], const V (&u)[4]) {
        const V sum = (u[1] + u[2]) * 0.5f;
        g[0] = u[0] + sum;
        g[1] = (u[1] - u[2]) * 0.5f;
        g[2] = sum + u[3];
    }
};

struct F4 {
    static constexpr int kOutputs = 4, kSize = 6;
    static constexpr float p = 0.75f, q = 1.5f, pp = p * p, qq = q * q, ppp = p * pp, qqq = q * qq;
    static constexpr float ppqq = pp * qq, both = pp + qq;
    static constexpr float of_0 = 1 / ppqq, of_p = 1 / (2 * pp * (pp - qq)), of_q = 1 / (2 * qq * (qq - pp));

    static LAYERMEM_INLINE V times(V a, float b, V c) { return fma(a, broadcast(b), c); }  // a b + c

    static LAYERMEM_INLINE void input(V (&d)[6]) {
        const V even_p = times(d[2], -qq, d[4]), odd_p = times(d[1], -qq, d[3]) * p;
        const V even_q = times(d[2], -pp, d[4]), odd_q = times(d[1], -pp, d[3]) * q;
        d[0] = times(d[0], ppqq, times(d[2], -both, d[4]));
        d[5] = times(d[1], ppqq, times(d[3], -both, d[5]));
        d[1] = even_p + odd_p;
        d[2] = even_p - odd_p;
        d[3] = even_q + odd_q;
        d[4] = even_q - odd_q;
    }
    static LAYERMEM_INLINE void output(V (&y)[4], const V (&m)[6]) {
        const V even_p = m[1] + m[2], odd_p = m[1] - m[2], even_q = m[3] + m[4], odd_q = m[3] - m[4];
        y[0] = m[0] + even_p + even_q;
        y[1] = times(odd_p, p, odd_q * q);
        y[2] = times(even_p, pp, even_q * qq);
        y[3] = times(odd_p, ppp, times(odd_q, qqq, m[5]));
    }
    static LAYERMEM_INLINE void gradient(V (&e)[6], const V (&dy)[4]) {
        const V even_p = times(dy[2], pp, dy[0]), odd_p = times(dy[3], pp, dy[1]) * p;
        const V even_q = times(dy[2], qq, dy[0]), odd_q = times(dy[3], qq, dy[1]) * q;
        e[0] = dy[0];
        e[1] = even_p + odd_p;
        e[2] = even_p - odd_p;
        e[3] = even_q + odd_q;
        e[4] = even_q - odd_q;
        e[5] = dy[3];
    }
    static LAYERMEM_INLINE void window(V (&u)[6], const V (&g)[3]) {
        const V even_p = times(g[2], pp, g[0]) * of_p, odd_p = g[1] * (p * of_p);
        const V even_q = times(g[2], qq, g[0]) * of_q, odd_q = g[1] * (q * of_q);
        u[0] = g[0] * of_0;
        u[1] = even_p + odd_p;
        u[2] = even_p - odd_p;
        u[3] = even_q + odd_q;
        u[4] = even_q - odd_q;
        u[5] = g[2];
    }
    static LAYERMEM_INLINE void window_gradient(V (&g)[3], const V (&u)[6]) {
        const V even_p = (u[1] + u[2]) * of_p, odd_p = (u[1] - u[2]) * (p * of_p);
        const V even_q = (u[3] + u[4]) * of_q, odd_q = (u[3] - u[4]) * (q * of_q);
        g[0] = times(u[0], of_0, even_p + even_q);
        g[1] = odd_p + odd_q;
        g[2] = times(even_p, pp, times(even_q, qq, u[5]));
    }
};

// The place of a tile: its image, its first pixel (y, x), and which of `size` rows and columns lie inside.
template <int kPixels>
struct TilePlace {
    int64_t image, y, x;  // image: offset in floats
    bool row[kPixels], column[kPixels];
    bool whole;

    TilePlace(const WinogradTiles& args, int64_t t, int64_t step) {
        const int64_t tile = args.first + t;
        int64_t place = tile / (args.tiles_h * args.tiles_w);
        if (args.frames) place = place / args.frames + place % args.frames * args.step;
        image = place * args.h * args.w * args.pixel;
        y = tile / args.tiles_w % args.tiles_h * step + args.top;
        x = tile % args.tiles_w * step + args.left;
        for (int i = 0; i < kPixels; ++i) {
            row[i] = y + i >= 0 && y + i < args.h;
            column[i] = x + i >= 0 && x + i < args.w;
        }
        whole = row[0] && column[0] && row[kPixels - 1] && column[kPixels - 1];
    }
    int64_t offset(const WinogradTiles& args) const { return image + (y * args.w + x) * args.pixel; }
};

// kSize x kSize elements, line by line.
template <int kSize>
using Tile = V[kSize][kSize];

// B' d B of the pixels under a tile; pixels outside the image are zeros.
template <class F, class T>
void transform_input(const WinogradTiles& args, int64_t begin, int64_t end) {
    constexpr int kSize = F::kSize;
    for (int64_t t = begin; t < end; ++t) {
        const TilePlace<kSize> place(args, t, F::kOutputs);
        const T* corner = reinterpret_cast<const T*>(args.in) + place.offset(args);
        const auto run = [&](const auto& pixel) __attribute__((always_inline)) {
            for_each_vector(0, args.c, [&](int64_t c, auto n) __attribute__((always_inline)) {
                Tile<kSize> d;
#pragma GCC unroll 6
                for (int j = 0; j < kSize; ++j) {
                    V line[kSize];
#pragma GCC unroll 6
                    for (int i = 0; i < kSize; ++i) line[i] = pixel(i, j, c, n);
                    F::input(line);
#pragma GCC unroll 6
                    for (int i = 0; i < kSize; ++i) d[i][j] = line[i];
                }
                float* out = args.tiles + t * args.c + c;
#pragma GCC unroll 6
                for (int i = 0; i < kSize; ++i) {
                    F::input(d[i]);
#pragma GCC unroll 6
                    for (int j = 0; j < kSize; ++j) store(out + (kSize * i + j) * args.pitch, d[i][j], n);
                }
            });
        };
        const auto at = [&](int i, int j, int64_t c, auto n) __attribute__((always_inline)) {
            return load(corner + (i * args.w + j) * args.pixel + c, n);
        };
        if (place.whole)
            run(at);
        else
            run([&](int i, int j, int64_t c, auto n) __attribute__((always_inline)) {
                return place.row[i] && place.column[j] ? at(i, j, c, n) : zero();
            });
    }
}

// A' m A: the products of a tile to its pixels, with the epilogue (bias or accumulate, relu).  Pixels beyond the border
// are not stored.
template <class F, class T>
void transform_output(const WinogradTiles& args, int64_t begin, int64_t end) {
    constexpr int kSize = F::kSize, kOutputs = F::kOutputs;
    for (int64_t t = begin; t < end; ++t) {
        const TilePlace<kOutputs> place(args, t, kOutputs);
        T* corner = reinterpret_cast<T*>(args.out) + place.offset(args);
        for_each_vector(0, args.c, [&](int64_t c, auto n) __attribute__((always_inline)) {
            const float* in = args.tiles + t * args.c + c;
            V lines[kOutputs][kSize];
#pragma GCC unroll 6
            for (int j = 0; j < kSize; ++j) {
                V m[kSize], y[kOutputs];
#pragma GCC unroll 6
                for (int i = 0; i < kSize; ++i) m[i] = load(in + (kSize * i + j) * args.pitch, n);
                F::output(y, m);
#pragma GCC unroll 4
                for (int i = 0; i < kOutputs; ++i) lines[i][j] = y[i];
            }
            const V bias = args.bias ? load(args.bias + c, n) : zero();
#pragma GCC unroll 4
            for (int i = 0; i < kOutputs; ++i) {
                if (!place.row[i]) break;
                V y[kOutputs];
                F::output(y, lines[i]);
#pragma GCC unroll 4
                for (int j = 0; j < kOutputs; ++j) {
                    if (!place.column[j]) break;
                    T* at = corner + (i * args.w + j) * args.pixel + c;
                    const V v = args.accumulate ? load(at, n) + y[j] : y[j] + bias;
                    store(at, args.relu ? relu(v) : v, n);
                }
            }
        });
    }
}

// A dy A' of the pixels of a gradient; pixels outside the image are zeros.
template <class F, class T>
void transform_dy(const WinogradTiles& args, int64_t begin, int64_t end) {
    constexpr int kSize = F::kSize, kOutputs = F::kOutputs;
    for (int64_t t = begin; t < end; ++t) {
        const TilePlace<kOutputs> place(args, t, kOutputs);
        const T* corner = reinterpret_cast<const T*>(args.in) + place.offset(args);
        for_each_vector(0, args.c, [&](int64_t c, auto n) __attribute__((always_inline)) {
            V lines[kSize][kOutputs];
#pragma GCC unroll 4
            for (int j = 0; j < kOutputs; ++j) {
                V dy[kOutputs], line[kSize];
#pragma GCC unroll 4
                for (int i = 0; i < kOutputs; ++i)
                    dy[i] =
                        place.row[i] && place.column[j] ? load(corner + (i * args.w + j) * args.pixel + c, n) : zero();
                F::gradient(line, dy);
#pragma GCC unroll 6
                for (int i = 0; i < kSize; ++i) lines[i][j] = line[i];
            }
            float* out = args.tiles + t * args.c + c;
#pragma GCC unroll 6
            for (int i = 0; i < kSize; ++i) {
                V line[kSize];
                F::gradient(line, lines[i]);
#pragma GCC unroll 6
                for (int j = 0; j < kSize; ++j) store(out + (kSize * i + j) * args.pitch, line[j], n);
            }
        });
    }
}

// u = G g G' of kLanes channels, from `first` on, of one window w [3][3][c]; rotate: of it rotated by 180 degrees.
template <class F, class N>
LAYERMEM_INLINE void transform_window(Tile<F::kSize>& u, const float* w, int64_t c, int64_t first, bool rotate, N n) {
    constexpr int kSize = F::kSize;
    V lines[kSize][3];
#pragma GCC unroll 3
    for (int j = 0; j < 3; ++j) {
        V g[3], line[kSize];
#pragma GCC unroll 3
        for (int i = 0; i < 3; ++i) g[i] = load(w + (rotate ? 8 - 3 * i - j : 3 * i + j) * c + first, n);
        F::window(line, g);
#pragma GCC unroll 6
        for (int i = 0; i < kSize; ++i) lines[i][j] = line[i];
    }
#pragma GCC unroll 6
    for (int i = 0; i < kSize; ++i) F::window(u[i], lines[i]);
}

// kLanes channels of kLanes windows, as a block [tap][channel][window]: lanes are columns of the panel then.
template <class F>
void pack_fprop(const WinogradWeights& args, const PackedPanel& panel, int64_t begin, int64_t end) {
    constexpr int kSize = F::kSize;
    alignas(64) float block[9][kLanes * kLanes];
    for (int64_t first = 0; first < panel.width; first += kLanes)
        for (int64_t c = begin; c < end; c += kLanes) {
            const int64_t n = min(kLanes, end - c);
            for (int tap = 0; tap < 9; ++tap) {
                const float* w = args.w + ((panel.column + first) * 9 + tap) * args.c + c;
                V square[kLanes];
#pragma GCC unroll 16
                for (int i = 0; i < kLanes; ++i)
                    square[i] = first + i < panel.columns ? load_up_to(w + i * 9 * args.c, n) : zero();
                for (int i = 0; i < kLanes; ++i) __builtin_prefetch(w + i * 9 * args.c + kLanes);  // the next channels
                transpose_registers(square);
#pragma GCC unroll 16
                for (int i = 0; i < kLanes; ++i) store(block[tap] + i * kLanes, square[i]);
            }
            for (int64_t i = 0; i < n; ++i) {
                Tile<kSize> u;
                transform_window<F>(u, block[0], kLanes * kLanes, i * kLanes, false, FullVector{});
                float* out = panel.packed + (c + i - panel.first) * panel.width + first;
#pragma GCC unroll 36
                for (int f = 0; f < kSize * kSize; ++f) store(out + f * panel.pitch, u[f / kSize][f % kSize]);
            }
        }
}

// Columns c are contiguous in w already.
template <class F>
void pack_dgrad(const WinogradWeights& args, const PackedPanel& panel, int64_t begin, int64_t end) {
    constexpr int kSize = F::kSize;
    for (int64_t k = begin; k < end; ++k)
        for (int64_t j = 0; j < panel.width; j += kLanes) {
            Tile<kSize> u;
            const int n = static_cast<int>(max(0, min(kLanes, panel.columns - j)));
            const float* next = args.w + (k + 1) * 9 * args.c + panel.column + j;
            for (int tap = 0; tap < 9; ++tap) __builtin_prefetch(next + tap * args.c);
            transform_window<F>(u, args.w + k * 9 * args.c, args.c, panel.column + j, true, n);
            float* out = panel.packed + (k - panel.first) * panel.width + j;
#pragma GCC unroll 36
            for (int f = 0; f < kSize * kSize; ++f) store(out + f * panel.pitch, u[f / kSize][f % kSize]);
        }
}

// dw [3][3][c] = G' u G for k in [begin, end), with u from tiles [elements][k][c].
template <class F>
void transform_dw(const WinogradWeights& args, int64_t begin, int64_t end) {
    constexpr int kSize = F::kSize;
    for (int64_t k = begin; k < end; ++k)
        for_each_vector(0, args.c, [&](int64_t c, auto n) __attribute__((always_inline)) {
            V lines[3][kSize];
#pragma GCC unroll 6
            for (int j = 0; j < kSize; ++j) {
                V u[kSize], line[3];
#pragma GCC unroll 6
                for (int i = 0; i < kSize; ++i)
                    u[i] = load(args.tiles + ((kSize * i + j) * args.k + k) * args.c + c, n);
                F::window_gradient(line, u);
#pragma GCC unroll 3
                for (int i = 0; i < 3; ++i) lines[i][j] = line[i];
            }
#pragma GCC unroll 3
            for (int i = 0; i < 3; ++i) {
                V taps[3];
                F::window_gradient(taps, lines[i]);
#pragma GCC unroll 3
                for (int j = 0; j < 3; ++j) {
                    float* out = args.dw + ((k * 3 + i) * 3 + j) * args.c + c;
                    store(out, args.accumulate ? load(out, n) + taps[j] : taps[j], n);
                }
            }
        });
}

}  // namespace

const WinogradKernels winograd2_kernels = {
    {transform_input<F2, float>, transform_input<F2, Bf16>, transform_input<F2, Fp16>},
    {transform_output<F2, float>, transform_output<F2, Bf16>, transform_output<F2, Fp16>},
    {transform_dy<F2, float>, transform_dy<F2, Bf16>, transform_dy<F2, Fp16>},
    pack_fprop<F2>,
    pack_dgrad<F2>,
    transform_dw<F2>};
const WinogradKernels winograd4_kernels = {
    {transform_input<F4, float>, transform_input<F4, Bf16>, transform_input<F4, Fp16>},
    {transform_output<F4, float>, transform_output<F4, Bf16>, transform_output<F4, Fp16>},
    {transform_dy<F4, float>, transform_dy<F4, Bf16>, transform_dy<F4, Fp16>},
    pack_fprop<F4>,
    pack_dgrad<F4>,
    transform_dw<F4>};

}  // namespace layermem::cpu::LAYERMEM_ISA
