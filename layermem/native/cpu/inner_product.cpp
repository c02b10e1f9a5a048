// InnerProduct: the weights may be most of a net's bytes, so none of the kernels copies them as a whole.
#include <algorithm>

#include "activation.h"
#include "convolution.h"
#include "pool.h"
#include "unit.h"

namespace layermem::cpu {
namespace {

constexpr int64_t OUTPUTS = 24;  // rows of w in a forward task, a multiple of every tile width
constexpr int64_t CHAIN = 2048;  // reduction steps of forward between two visits to y
constexpr int64_t FEW = 32;     // rows of x up to which the data gradient is bound by reading w, and packing would cost
constexpr int64_t LINE = 1024;  // then: most columns of w in a task, long lines while dx stays in cache
constexpr int64_t WIDTH = 256;  // else: columns of w in a task
constexpr int64_t STEPS = 64;   // and rows of it that the task packs at a time: 64 KiB
constexpr int64_t TALL = 12;    // rows of w in a tile that learns, a multiple of every tile height
constexpr int64_t WIDE = 1024;  // and columns: 48 KiB of gradient
constexpr int64_t PIXELS = 96;  // rows of x whose products are added to a tile at a time

Conv as_convolution(int64_t m, int64_t n, int64_t k) { return {m, k, 1, 1, n, 1, 1, 1, 1, 0, 0, 1, 1, 1}; }

void backward_columns(const Unit& u, int64_t m, int64_t n, int64_t k, float* dx, const float* dy, const float* w,
                      bool accumulate, int64_t first, int64_t columns) {
    alignas(64) float packed[STEPS * WIDTH];
    const float* in[ROWS];
    float* out[ROWS];
    for (int64_t step = 0; step < n; step += STEPS) {
        const int64_t depth = std::min(STEPS, n - step);
        for (int64_t c = 0; c < columns;) {
            const int64_t left = columns - c,
                          vectors = std::min<int64_t>(u.max_vectors, (left + u.lanes - 1) / u.lanes);
            const int64_t width = vectors * u.lanes, use = std::min(left, width);
            u.pack_rows(packed, w + step * k + first + c, k, depth, use, width);
            GemmBlock g{};
            g.in = in, g.out = out, g.pitch = ROWS, g.runs = 1, g.length = depth, g.packed = packed;
            g.column = first + c, g.vectors = static_cast<int>(vectors),
            g.last = static_cast<int>(use - width + u.lanes);
            g.start = step > 0 || accumulate ? Start::out : Start::zero;
            for (int64_t row = 0; row < m; row += ROWS) {
                g.rows = std::min(ROWS, m - row);
                for (int64_t i = 0; i < ROWS; ++i) {
                    const int64_t at = row + std::min(i, g.rows - 1);
                    in[i] = dy + at * n + step, out[i] = dx + at * k;
                }
                u.gemm(g);
            }
            c += width;
        }
    }
}

Launch backward_lines(int64_t m, int64_t n, int64_t k, float* dx, const float* dy, const float* w, bool accumulate) {
    return [=, u = &unit()] {
        const int64_t parts = std::clamp<int64_t>(k / 64, 1, std::max<int64_t>(16, (k + LINE - 1) / LINE));
        parallel(parts, [&](int64_t i) {
            const int64_t from = cut(k / 16, parts, i) * 16, till = i + 1 == parts ? k : cut(k / 16, parts, i + 1) * 16;
            u->rank({dy, w + from, n, k, n, m, till - from, dx + from, k, accumulate ? Start::out : Start::zero});
        });
    };
}

// tile [rows][WIDE] = the gradient of w[first..first + rows)[column..column + columns)
void gradient_tile(const Unit& u, int64_t m, int64_t n, int64_t k, float* tile, const float* x, const float* dy,
                   int64_t first, int64_t rows, int64_t column, int64_t columns) {
    const float *from[PIXELS], *by[PIXELS];
    OuterBlock b{};
    b.x = from, b.d = by, b.rows = rows, b.columns = columns, b.out = tile, b.pitch = WIDE, b.start = Start::zero;
    for (int64_t row = 0; row < m; row += PIXELS) {
        b.count = std::min(PIXELS, m - row);
        for (int64_t i = 0; i < b.count; ++i) from[i] = x + (row + i) * k + column, by[i] = dy + (row + i) * n + first;
        u.outer(b);
        b.start = Start::out;
    }
}

}  // namespace

Launch inner_product_forward(int64_t m, int64_t n, int64_t k, float* y, const float* x, const float* w,
                             const float* bias, bool relu, uint8_t* mask) {
    as_convolution(m, n, k).check();
    return [=, u = &unit()] {
        parallel((n + OUTPUTS - 1) / OUTPUTS, [&](int64_t task) {
            DotBlock d{};
            d.columns = std::min(OUTPUTS, n - task * OUTPUTS), d.rows = m;
            d.a_pitch = d.b_pitch = k, d.out = y + task * OUTPUTS, d.pitch = n;
            d.bias = bias ? bias + task * OUTPUTS : nullptr;
            for (int64_t from = 0; from < k; from += CHAIN) {
                d.length = std::min(CHAIN, k - from);
                d.a = x + from, d.b = w + task * OUTPUTS * k + from;
                d.start = from > 0 ? Start::out : bias ? Start::bias : Start::zero;
                d.relu = relu && from + d.length == k;
                u->dot(d);
            }
        });
        if (mask) write_mask(*u, m * n, y, mask);
    };
}

Launch inner_product_backward_data(int64_t m, int64_t n, int64_t k, float* dx, const float* dy, const float* w,
                                   bool accumulate) {
    as_convolution(m, n, k).check();
    if (m <= FEW) return backward_lines(m, n, k, dx, dy, w, accumulate);
    return [=, u = &unit()] {
        parallel((k + WIDTH - 1) / WIDTH, [&](int64_t task) {
            backward_columns(*u, m, n, k, dx, dy, w, accumulate, task * WIDTH, std::min(WIDTH, k - task * WIDTH));
        });
    };
}

int64_t inner_product_backward_weights_workspace(int64_t m, int64_t n, int64_t k) {
    return conv_backward_weights_workspace(as_convolution(m, n, k));
}

Launch inner_product_backward_weights(int64_t m, int64_t n, int64_t k, float* dw, const float* x, const float* dy,
                                      bool accumulate, void* scratch) {
    return conv_backward_weights(as_convolution(m, n, k), dw, x, dy, accumulate, scratch);
}

RatedLaunch inner_product_learn(int64_t m, int64_t n, int64_t k, const float* x, const float* dy, const Update& g) {
    as_convolution(m, n, k).check();
    return [=, u = &unit()](float rate, float gain) {
        const int64_t blocks = (n + TALL - 1) / TALL, strips = (k + WIDE - 1) / WIDE;
        const int64_t shares = std::clamp<int64_t>((32 + blocks - 1) / blocks, 1, strips);
        parallel(blocks * shares, [&](int64_t task) {
            alignas(64) float tile[TALL * WIDE];
            const int64_t first = task / shares * TALL, rows = std::min(TALL, n - first), share = task % shares;
            for (int64_t s = cut(strips, shares, share); s < cut(strips, shares, share + 1); ++s) {
                const int64_t column = s * WIDE, columns = std::min(WIDE, k - column);
                gradient_tile(*u, m, n, k, tile, x, dy, first, rows, column, columns);
                for (int64_t i = 0; i < rows; ++i) {
                    const int64_t at = (first + i) * k + column;
                    Update now = g;
                    now.w += at, now.h0 += at, now.h1 = g.h1 ? g.h1 + at : nullptr, now.dw = tile + i * WIDE;
                    now.rate = rate, now.gain = gain;
                    u->update(now, 0, columns);
                }
            }
        });
    };
}

}  // namespace layermem::cpu
