// The weight gradient: for every tap, out-channels times in-channels summed over pixels.
//
//     dw[k][tap][c] = sum over pixels of dy[pixel][k] * x[pixel moved by tap][c]
//
// Pixels go by in blocks that stay in cache while all taps and channels use them.  Only pixels whose tap lies inside
// the image are visited, so padding costs nothing.  Where dw is small, pixels are cut into a number of parts that
// depends on the shape only; each sums into its own copy, and the copies are added in order.
//
// Lanes are in-channels.  Where those would leave most lanes empty (an image of three channels), lanes are out-channels
// instead, and each copy is the transpose of dw.
#include <algorithm>
#include <cstring>

#include "convolution.h"
#include "depthwise.h"
#include "pool.h"
#include "unit.h"
#include "winograd.h"

namespace layermem::cpu {
namespace {

constexpr int64_t PIXELS = 96;               // most pixels of a block: bounds the tables of pointers
constexpr int64_t BLOCK_FLOATS = 96 * 1024;  // of x and dy that a block should touch
constexpr int64_t COPIES_BYTES = 4 << 20;    // most workspace for copies of dw
constexpr int64_t CHUNK = 64;                // out-channels of a task
constexpr int64_t TASKS = 32;
constexpr int64_t EDGE_FLOATS = 12288;

struct Split {
    int64_t parts, chunks, pixels;  // of all pixels, of out-channels, in a block
    bool turned;                    // lanes are out-channels
    bool copies() const { return parts > 1 || turned; }
};

// Which way wastes fewer lanes, counted for the widest unit so that it is the same for all.
bool better_turned(const Conv& g) {
    if (!g.whole_rows()) return false;
    const int64_t row = g.kw * g.c;
    return row * ((g.k + 15) / 16) < g.k * ((row + 15) / 16);
}

Split split(const Conv& g) {
    const int64_t floats = g.k * g.taps() * g.cg(), rows = g.n * g.ho() * g.wo();
    Split s{};
    s.turned = better_turned(g);
    s.chunks = s.turned ? 1 : (g.kg() + CHUNK - 1) / CHUNK;
    s.parts = std::clamp<int64_t>((TASKS + s.chunks * g.groups - 1) / (s.chunks * g.groups), 1, s.turned ? TASKS : 16);
    s.parts = std::clamp<int64_t>(COPIES_BYTES / (floats * 4), 1, s.parts);
    s.parts = std::clamp<int64_t>(rows / 256, 1, s.parts);
    s.pixels = std::clamp<int64_t>(BLOCK_FLOATS / (g.cg() + std::min(CHUNK, g.kg())), 32, PIXELS);
    if (g.whole_rows()) s.pixels = std::min(s.pixels, EDGE_FLOATS / (g.kw * g.c));
    return s;
}

// Pairs (pixel of x, pixel of dy) that one tap multiplies.
struct Pairs {
    const float* x[PIXELS];
    const float* d[PIXELS];
    int64_t count = 0;
    alignas(64) float edge[EDGE_FLOATS];
    float* edge_end = edge;

    void add(const float* px, const float* pd) { x[count] = px, d[count] = pd, ++count; }
};

// The first and one past the last output column whose tap at `shift` pixels lies inside [0, width).
void inside(int64_t shift, int64_t step, int64_t width, int64_t& from, int64_t& till) {
    from = shift >= 0 ? 0 : (-shift + step - 1) / step;
    till = shift >= width ? 0 : (width - 1 - shift) / step + 1;
}

class Gatherer {
  public:
    Gatherer(const Conv& g, const float* x) : g_(g), x_(x), ho_(g.ho()), wo_(g.wo()) {}

    // Pixels [begin, end) of dy, which lie `pitch` floats apart from `dy` on, for the tap that starts at (r, t);
    // `span` pixels of x wide.
    void collect(Pairs& out, int64_t begin, int64_t end, const float* dy, int64_t pitch, int64_t r, int64_t t,
                 int64_t span) const {
        out.count = 0;
        out.edge_end = out.edge;
        int64_t from, till, whole_from, whole_till;
        const int64_t shift = t * g_.dw - g_.pw;
        inside(shift, g_.sw, g_.w, whole_from, whole_till);
        from = whole_from, till = whole_till;
        if (span > 1) {
            int64_t unused;
            inside(shift + span - 1, g_.sw, g_.w, from, unused);  // touches the image from here
            inside(shift, g_.sw, g_.w, unused, till);             // to here
            inside(shift + span - 1, g_.sw, g_.w, unused, whole_till);
        }
        for (int64_t m = begin; m < end;) {
            const int64_t line = m / wo_, first = m - line * wo_, last = std::min(wo_, first + end - m);
            const float* d = dy + (m - first - begin) * pitch;
            m += last - first;
            const int64_t n = line / ho_, h = line % ho_ * g_.sh - g_.ph + r * g_.dh;
            if (h < 0 || h >= g_.h) continue;
            const float* row = x_ + (n * g_.h + h) * g_.w * g_.c;
            for (int64_t i = std::max(first, from); i < std::min(last, till); ++i) {
                const int64_t w = i * g_.sw + shift;
                if (i >= whole_from && i < whole_till)
                    out.add(row + w * g_.c, d + i * pitch);
                else
                    out.add(copy_window(out, row, w, span), d + i * pitch);
            }
        }
    }

  private:
    const float* copy_window(Pairs& out, const float* row, int64_t w, int64_t span) const {
        const int64_t from = std::max<int64_t>(w, 0), till = std::min(w + span, g_.w), floats = span * g_.c;
        float* to = out.edge_end;
        std::memset(to, 0, static_cast<size_t>(floats) * sizeof(float));
        std::memcpy(to + (from - w) * g_.c, row + from * g_.c,
                    static_cast<size_t>((till - from) * g_.c) * sizeof(float));
        out.edge_end += floats;
        return to;
    }

    const Conv& g_;
    const float* x_;
    const int64_t ho_, wo_;
};

void sum_part(const Unit& u, const Conv& g, const Split& s, float* dw, const float* x, const float* dy, int64_t part,
              int64_t group, int64_t chunk, bool accumulate) {
    const int64_t rows = g.n * g.ho() * g.wo(), begin = cut(rows, s.parts, part), end = cut(rows, s.parts, part + 1);
    const int64_t k0 = cut(g.kg(), s.chunks, chunk), k1 = cut(g.kg(), s.chunks, chunk + 1), k = group * g.kg() + k0;
    const int64_t span = g.whole_rows() ? g.kw : 1, pitch = g.taps() * g.cg();
    const Gatherer gather(g, x + group * g.cg());
    Pairs pairs;
    alignas(64) float packed[PIXELS * CHUNK];
    OuterBlock b{};
    b.x = pairs.x, b.d = pairs.d, b.rows = k1 - k0, b.columns = span * g.cg(), b.pitch = pitch;
    b.start = accumulate ? Start::out : Start::zero;
    if (s.turned) b.x = pairs.d, b.d = pairs.x, b.rows = span * g.c, b.columns = g.k, b.pitch = g.k;
    for (int64_t m = begin; m < end; m += s.pixels) {
        const int64_t till = std::min(m + s.pixels, end);
        const float* d = dy + m * g.k + k;
        if (!s.turned) u.copy_rows({packed, d, till - m, k1 - k0, k1 - k0, g.k, false}, 0, till - m), d = packed;
        for (int64_t r = 0; r < g.kh; ++r)
            for (int64_t t = 0; t < g.kw; t += span) {
                gather.collect(pairs, m, till, d, s.turned ? g.k : k1 - k0, r, t, span);
                b.count = pairs.count;
                const int64_t tap = (r * g.kw + t) * g.cg();
                b.out = dw + (s.turned ? tap * g.k : k * pitch + tap);
                u.outer(b);
            }
        b.start = Start::out;
    }
}

void add_turned(const Unit& u, const Conv& g, const Split& s, float* dw, float* copies, bool accumulate) {
    const int64_t depth = g.taps() * g.c, floats = depth * g.k;
    if (s.parts > 1) u.add_rows(copies, copies + floats, floats, s.parts - 1, floats, Start::out);
    for (int64_t k = 0; k < g.k; ++k)
        for (int64_t j = 0; j < depth; ++j) {
            float& out = dw[k * depth + j];
            out = accumulate ? out + copies[j * g.k + k] : copies[j * g.k + k];
        }
}

}  // namespace

int64_t conv_backward_weights_workspace(const Conv& g) {
    g.check();
    if (is_depthwise(g)) return depthwise_weights_workspace(g);
    if (is_winograd(g)) return winograd_weights_workspace(g);
    const Split s = split(g);
    return !s.copies() ? 0 : padded(s.parts * g.k * g.taps() * g.cg() * static_cast<int64_t>(sizeof(float)));
}

Launch conv_backward_weights(const Conv& g, float* dw, const float* x, const float* dy, bool accumulate,
                             void* scratch) {
    g.check();
    if (is_depthwise(g)) return depthwise_backward_weights(g, dw, x, dy, accumulate, scratch);
    if (is_winograd(g)) return winograd_backward_weights(g, dw, x, dy, accumulate, scratch);
    const Split s = split(g);
    const int64_t floats = g.k * g.taps() * g.cg();
    return [=, u = &unit()] {
        float* copies = static_cast<float*>(scratch);
        parallel(s.parts * g.groups * s.chunks, [&](int64_t task) {
            const int64_t chunk = task % s.chunks, group = task / s.chunks % g.groups,
                          part = task / s.chunks / g.groups;
            if (!s.copies())
                sum_part(*u, g, s, dw, x, dy, part, group, chunk, accumulate);
            else
                sum_part(*u, g, s, copies + part * floats, x, dy, part, group, chunk, false);
        });
        if (!s.copies()) return;
        if (s.turned) return add_turned(*u, g, s, dw, copies, accumulate);
        const int64_t pieces = std::clamp<int64_t>(floats / 4096, 1, 64);
        parallel(pieces, [&](int64_t i) {
            const int64_t from = cut(floats / 16, pieces, i) * 16;
            const int64_t till = i + 1 == pieces ? floats : cut(floats / 16, pieces, i + 1) * 16;
            u->add_rows(dw + from, copies + from, floats, s.parts, till - from, accumulate ? Start::out : Start::zero);
        });
    };
}

namespace {
int64_t sum_parts(int64_t rows, int64_t columns) { return std::clamp<int64_t>(rows * columns / 32768, 1, 16); }
}  // namespace

int64_t column_sums_workspace(int64_t rows, int64_t columns) {
    const int64_t parts = sum_parts(rows, columns);
    return parts == 1 ? 0 : padded(parts * columns * static_cast<int64_t>(sizeof(float)));
}

Launch column_sums(int64_t rows, int64_t columns, float* out, const float* in, bool accumulate, void* scratch) {
    const int64_t parts = sum_parts(rows, columns);
    const Start start = accumulate ? Start::out : Start::zero;
    return [=, u = &unit()] {
        if (parts == 1) return u->add_rows(out, in, columns, rows, columns, start);
        float* sums = static_cast<float*>(scratch);
        parallel(parts, [&](int64_t i) {
            const int64_t from = cut(rows, parts, i);
            u->add_rows(sums + i * columns, in + from * columns, columns, cut(rows, parts, i + 1) - from, columns,
                        Start::zero);
        });
        u->add_rows(out, sums, columns, parts, columns, start);
    };
}

}  // namespace layermem::cpu
