#include "winograd.h"

#include <algorithm>

#include "activation.h"
#include "pool.h"
#include "sweep.h"
#include "unit.h"

namespace layermem::cpu {
namespace {

constexpr int64_t ROOM_BYTES = 2 << 20;  // of squares at a time: more would leave the cache, fewer starve the products
constexpr int64_t SKEW = 80;             // floats between elements' planes, so that they do not meet in one cache set
constexpr int64_t CHUNK = 64;            // out-channels of a weight gradient's task

int64_t up(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t tiles_of(const Conv& g) { return g.n * up(g.ho(), 2) * up(g.wo(), 2); }
int64_t at_once(const Conv& g, int64_t tiles) {
    return std::min(tiles, std::max<int64_t>(ROOM_BYTES / (SQUARE * 4 * (g.c + g.k)) / 48 * 48, 48));
}
int64_t plane(int64_t tiles, int64_t channels) { return tiles * channels + SKEW; }
int64_t floats_bytes(int64_t floats) { return padded(floats * static_cast<int64_t>(sizeof(float))); }
float* after(float* part, int64_t floats) { return part + floats_bytes(floats) / static_cast<int64_t>(sizeof(float)); }

template <class Body>
void share(int64_t count, int64_t step, const Body& body) {
    parallel(up(count, step), [&](int64_t i) { body(i * step, std::min(count, (i + 1) * step)); });
}

// One group of a convolution is a convolution of its own, whose pixels lie further apart than they are wide.
struct Group {
    Conv g;
    int64_t x_pixel, y_pixel;  // floats from one pixel to the next
};
Group group_of(const Conv& g) {
    Group one{g, g.c, g.k};
    one.g.c = g.cg(), one.g.k = g.kg(), one.g.groups = 1;
    return one;
}

// A group as the transforms see it: of x forward, of dy backward.
struct Sides {
    int64_t in_h, in_w, in_c, in_pixel, out_h, out_w, out_c, out_pixel, images, pad_h, pad_w;
};
Sides forward_sides(const Group& it) {
    const Conv& g = it.g;
    return {g.h, g.w, g.c, it.x_pixel, g.ho(), g.wo(), g.k, it.y_pixel, g.n, g.ph, g.pw};
}
Sides backward_sides(const Group& it) {
    const Conv& g = it.g;
    return {g.ho(), g.wo(), g.k, it.y_pixel, g.h, g.w, g.c, it.x_pixel, g.n, 2 - g.ph, 2 - g.pw};
}

// One block of tiles through the 16 products: squares [16][count][in_c] -> sums [16][count][out_c].
void multiply(const Unit& u, const Sides& s, int64_t count, const float* squares, float* sums, const float* packed,
              int64_t packed_plane) {
    const auto all = panels(u, s.out_c);
    const int64_t wide = static_cast<int64_t>(all.size()), blocks = up(count, ROWS), parts = up(s.in_c, DEPTH);
    const int64_t shares = std::clamp<int64_t>(64 / (SQUARE * blocks), 1, wide);
    parallel(SQUARE * blocks * shares, [&](int64_t task) {
        const int64_t part = task % shares, block = task / shares % blocks, f = task / shares / blocks;
        const float* in[ROWS];
        float* out[ROWS];
        GemmBlock g{};
        g.in = in, g.out = out, g.pitch = ROWS, g.runs = 1, g.rows = std::min(ROWS, count - block * ROWS);
        for (int64_t d = 0; d < parts; ++d) {
            const int64_t from = cut(s.in_c, parts, d);
            g.length = cut(s.in_c, parts, d + 1) - from, g.start = d ? Start::out : Start::zero;
            for (int64_t i = 0; i < ROWS; ++i) {
                const int64_t tile = block * ROWS + std::min(i, g.rows - 1);
                in[i] = squares + f * plane(count, s.in_c) + tile * s.in_c + from;
                out[i] = sums + f * plane(count, s.out_c) + tile * s.out_c;
            }
            for (int64_t p = cut(wide, shares, part); p < cut(wide, shares, part + 1); ++p) {
                g.vectors = all[p].vectors, g.last = all[p].last, g.column = all[p].column;
                g.packed = packed + f * packed_plane + all[p].offset * s.in_c + from * all[p].vectors * u.lanes;
                u.gemm(g);
            }
        }
    });
}

struct Output {
    float* out;
    const float* bias;
    bool accumulate, relu;
};

void run(const Unit& u, const Conv& g, const Sides& s, const Output& o, const float* in, float* packed) {
    const int64_t down = up(s.out_h, 2), right = up(s.out_w, 2), tiles = s.images * down * right;
    const int64_t most = at_once(g, tiles), packed_plane = packed_floats(s.in_c, s.out_c) + SKEW;
    float *squares = after(packed, SQUARE * packed_plane), *sums = after(squares, SQUARE * plane(most, s.in_c));
    for (int64_t first = 0; first < tiles; first += most) {
        const int64_t count = std::min(most, tiles - first);
        WinogradTiles read{
            s.in_h,  s.in_w, s.in_c,  down,    right, s.in_pixel, -s.pad_h, -s.pad_w, first, plane(count, s.in_c),
            squares, in,     nullptr, nullptr, false, false};
        share(count, std::max<int64_t>(1, 2048 / s.in_c), [&](int64_t a, int64_t b) { u.winograd_in(read, a, b); });
        multiply(u, s, count, squares, sums, packed, packed_plane);
        WinogradTiles write{
            s.out_h, s.out_w, s.out_c, down,   right,        s.out_pixel, 0, 0, first, plane(count, s.out_c),
            sums,    nullptr, o.out,   o.bias, o.accumulate, o.relu};
        share(count, std::max<int64_t>(1, 2048 / s.out_c), [&](int64_t a, int64_t b) { u.winograd_out(write, a, b); });
    }
}

int64_t room_bytes(const Conv& g, const Sides& s) {
    const int64_t most = at_once(g, s.images * up(s.out_h, 2) * up(s.out_w, 2));
    return floats_bytes(SQUARE * (packed_floats(s.in_c, s.out_c) + SKEW)) + floats_bytes(SQUARE * plane(most, s.in_c)) +
           floats_bytes(SQUARE * plane(most, s.out_c));
}

}  // namespace

// Few channels leave too little to multiply between the transforms of pixels, few tiles too little after that of weights.
bool is_winograd(const Conv& g) {
    return g.kh == 3 && g.kw == 3 && g.sh == 1 && g.sw == 1 && g.dh == 1 && g.dw == 1 && g.cg() >= 32 && g.kg() >= 32 &&
           g.ph <= 2 && g.pw <= 2 && tiles_of(g) >= 64;
}

int64_t winograd_workspace(const Conv& g) {
    const Group one = group_of(g);
    return std::max(room_bytes(one.g, forward_sides(one)), room_bytes(one.g, backward_sides(one)));
}

Launch winograd_forward(const Conv& g, float* y, const float* x, const float* w, const float* bias, bool accumulate,
                        bool relu, uint8_t* mask, void* scratch) {
    return [=, u = &unit()] {
        const Group one = group_of(g);
        const int64_t c = one.g.c, k = one.g.k, pitch = packed_floats(c, k) + SKEW;
        float* packed = static_cast<float*>(scratch);
        const auto all = panels(*u, k);
        for (int64_t i = 0; i < g.groups; ++i) {
            const WinogradWeights weights{k, c, w + i * k * 9 * c, nullptr, nullptr, false};
            parallel(static_cast<int64_t>(all.size()), [&](int64_t p) {
                const int64_t width = all[p].vectors * u->lanes;
                u->winograd_pack_columns(weights, packed + all[p].offset * c, pitch, all[p].column,
                                         width - u->lanes + all[p].last, width);
            });
            run(*u, one.g, forward_sides(one), {y + i * k, bias ? bias + i * k : nullptr, accumulate, relu}, x + i * c,
                packed);
        }
        if (mask) write_mask(*u, g.n * g.ho() * g.wo() * g.k, y, mask);
    };
}

Launch winograd_backward_data(const Conv& g, float* dx, const float* dy, const float* w, const float* bias,
                              bool accumulate, void* scratch) {
    return [=, u = &unit()] {
        const Group one = group_of(g);
        const int64_t c = one.g.c, k = one.g.k, pitch = packed_floats(k, c) + SKEW, parts = up(k, CHUNK);
        float* packed = static_cast<float*>(scratch);
        const auto all = panels(*u, c);
        for (int64_t i = 0; i < g.groups; ++i) {
            const WinogradWeights weights{k, c, w + i * k * 9 * c, nullptr, nullptr, false};
            parallel(static_cast<int64_t>(all.size()) * parts, [&](int64_t task) {
                const Panel& p = all[task / parts];
                const int64_t width = p.vectors * u->lanes, begin = task % parts * CHUNK;
                u->winograd_pack_rows(weights, packed + p.offset * k, pitch, p.column, width - u->lanes + p.last, width,
                                      begin, std::min(k, begin + CHUNK));
            });
            run(*u, one.g, backward_sides(one), {dx + i * c, bias ? bias + i * c : nullptr, accumulate, false},
                dy + i * k, packed);
        }
    };
}

int64_t winograd_weights_workspace(const Conv& all) {
    const Conv g = group_of(all).g;
    const int64_t most = at_once(g, tiles_of(g));
    return floats_bytes(SQUARE * g.k * g.c) + floats_bytes(SQUARE * plane(most, g.c)) +
           floats_bytes(SQUARE * plane(most, g.k));
}

namespace {

// The squares of one group's weight gradient, summed over all tiles, in blocks that stay in cache.
void sum_squares(const Unit& u, const Group& it, float* total, const float* x, const float* dy) {
    const Conv& g = it.g;
    const int64_t down = up(g.ho(), 2), right = up(g.wo(), 2), tiles = tiles_of(g), most = at_once(g, tiles);
    float *squares = after(total, SQUARE * g.k * g.c), *spread = after(squares, SQUARE * plane(most, g.c));
    const int64_t chunks = up(g.k, CHUNK);
    for (int64_t first = 0; first < tiles; first += most) {
        const int64_t count = std::min(most, tiles - first);
        const WinogradTiles in{
            g.h,     g.w, g.c,     down,    right, it.x_pixel, -g.ph, -g.pw, first, plane(count, g.c),
            squares, x,   nullptr, nullptr, false, false};
        const WinogradTiles out{g.ho(), g.wo(), g.k,     down,    right, it.y_pixel, 0, 0, first, plane(count, g.k),
                                spread, dy,     nullptr, nullptr, false, false};
        share(count, std::max<int64_t>(1, 2048 / (g.c + g.k)), [&](int64_t a, int64_t b) {
            u.winograd_in(in, a, b);
            u.winograd_spread(out, a, b);
        });
        parallel(SQUARE * chunks, [&](int64_t task) {
            const int64_t f = task / chunks, k = task % chunks * CHUNK;
            constexpr int64_t run = 96;
            const float *px[run], *pd[run];
            OuterBlock b{};
            b.x = px, b.d = pd, b.rows = std::min(CHUNK, g.k - k), b.columns = g.c, b.pitch = g.c;
            b.out = total + (f * g.k + k) * g.c;
            for (int64_t from = 0; from < count; from += run) {
                b.count = std::min(run, count - from);
                b.start = first == 0 && from == 0 ? Start::zero : Start::out;
                for (int64_t i = 0; i < b.count; ++i) {
                    px[i] = squares + f * plane(count, g.c) + (from + i) * g.c;
                    pd[i] = spread + f * plane(count, g.k) + (from + i) * g.k + k;
                }
                u.outer(b);
            }
        });
    }
}

}  // namespace

Launch winograd_backward_weights(const Conv& g, float* dw, const float* x, const float* dy, bool accumulate,
                                 void* scratch) {
    return [=, u = &unit()] {
        const Group one = group_of(g);
        const int64_t c = one.g.c, k = one.g.k;
        float* total = static_cast<float*>(scratch);
        for (int64_t i = 0; i < g.groups; ++i) {
            sum_squares(*u, one, total, x + i * c, dy + i * k);
            const WinogradWeights weights{k, c, nullptr, dw + i * k * 9 * c, total, accumulate};
            share(k, 4, [&](int64_t a, int64_t b) { u->winograd_weights(weights, a, b); });
        }
    };
}

}  // namespace layermem::cpu
