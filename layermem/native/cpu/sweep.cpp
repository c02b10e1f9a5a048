#include "sweep.h"

#include <algorithm>
#include <cstring>

#include "pool.h"

namespace layermem::cpu {
namespace {

constexpr int64_t RUNS = 32;            // most runs of one GemmBlock: bounds the table of pointers
constexpr int64_t EDGE_FLOATS = 12288;  // windows that cross the border are copied here, 48 KiB
constexpr int64_t TASKS = 64;           // enough to share out evenly, whatever the number of threads
alignas(64) const float NOTHING[DEPTH] = {};

// A stretch of the reduction that one GemmBlock does: whole taps, or a part of one long tap.
struct Stretch {
    int64_t tap, taps, first, length;
};

std::vector<Stretch> stretches(int64_t taps, int64_t length) {
    std::vector<Stretch> all;
    if (taps == 0) return {{0, 0, 0, length}};  // nothing to add, but the first value is still to be written
    if (length > DEPTH) {
        const int64_t parts = (length + DEPTH - 1) / DEPTH;
        for (int64_t t = 0; t < taps; ++t)
            for (int64_t p = 0; p < parts; ++p)
                all.push_back({t, 1, cut(length, parts, p), cut(length, parts, p + 1) - cut(length, parts, p)});
        return all;
    }
    const int64_t most = std::min(RUNS, std::max<int64_t>(1, DEPTH / length)), parts = (taps + most - 1) / most;
    for (int64_t p = 0; p < parts; ++p)
        all.push_back({cut(taps, parts, p), cut(taps, parts, p + 1) - cut(taps, parts, p), 0, length});
    return all;
}

struct Pixel {  // of the output: where its sums go and where its windows begin
    float* out;
    const float* image;
    int64_t h, w;
    uint64_t inside;  // the taps that meet the image
};

// The rows [begin, begin + count) of a sweep, as pointers.
class Block {
  public:
    Block(const Sweep& s, int64_t begin, int64_t count, float* out, const float* in) : s_(s), count_(count) {
        int64_t x = begin % s.rows_w, y = begin / s.rows_w % s.rows_h, n = begin / s.rows_w / s.rows_h;
        for (int64_t i = 0; i < count; ++i) {
            const int64_t oh = y * s.out_step_h + s.out_first_h, ow = x * s.out_step_w + s.out_first_w;
            pixel_[i] = {out + ((n * s.out_h + oh) * s.out_w + ow) * s.out_pitch, in + n * s.in_h * s.in_w * s.in_pitch,
                         y * s.in_step_h, x * s.in_step_w, 0};
            if (++x == s.rows_w) {
                x = 0;
                if (++y == s.rows_h) y = 0, ++n;
            }
        }
        if (s.taps.size() > 1 && s.taps.size() <= 64 && s.rows_w <= 32) sort();
        for (int64_t i = 0; i < count; ++i) out_[i] = pixel_[i].out;
    }

    void aim(const Stretch& stretch) {
        float* edge = edge_;
        for (int64_t r = 0; r < stretch.taps; ++r) {
            const Tap tap = s_.taps[stretch.tap + r];
            const float** to = in_ + r * ROWS;
            for (int64_t i = 0; i < count_; ++i) {
                const Pixel& p = pixel_[i];
                const int64_t h = p.h + tap.h, w = p.w + tap.w;
                if (h < 0 || h >= s_.in_h || w <= -s_.span || w >= s_.in_w)
                    to[i] = NOTHING;
                else if (w >= 0 && w + s_.span <= s_.in_w)
                    to[i] = p.image + (h * s_.in_w + w) * s_.in_pitch + stretch.first;
                else
                    to[i] = edge, copy_window(edge, p.image + h * s_.in_w * s_.in_pitch, w), edge += s_.length;
            }
            for (int64_t i = count_; i < std::min(count_ + 11, ROWS); ++i) to[i] = NOTHING;  // up to a whole tile
        }
    }

    const float* const* in() const { return in_; }
    float* const* out() const { return out_; }

  private:
    // A tile skips a tap that none of its rows has, so in small images rows that miss the same taps stand together.
    void sort() {
        bool all = true;
        for (int64_t i = 0; i < count_; ++i) {
            Pixel& p = pixel_[i];
            for (const Tap& tap : s_.taps) {
                const int64_t h = p.h + tap.h, w = p.w + tap.w;
                p.inside = p.inside << 1 | (h >= 0 && h < s_.in_h && w > -s_.span && w < s_.in_w);
            }
            all &= p.inside == pixel_[0].inside;
        }
        if (!all)
            std::stable_sort(pixel_, pixel_ + count_,
                             [](const Pixel& a, const Pixel& b) { return a.inside > b.inside; });
    }

    void copy_window(float* to, const float* row, int64_t w) const {
        const int64_t c = s_.in_pitch, from = std::max<int64_t>(w, 0), till = std::min(w + s_.span, s_.in_w);
        std::memset(to, 0, static_cast<size_t>(s_.length) * sizeof(float));
        std::memcpy(to + (from - w) * c, row + from * c, static_cast<size_t>((till - from) * c) * sizeof(float));
    }

    const Sweep& s_;
    const int64_t count_;
    Pixel pixel_[ROWS];
    float* out_[ROWS];
    const float* in_[RUNS * ROWS];
    alignas(64) float edge_[EDGE_FLOATS];
};

}  // namespace

std::vector<Panel> panels(const Unit& u, int64_t columns) {
    std::vector<Panel> all;
    const int64_t vectors = (columns + u.lanes - 1) / u.lanes, count = (vectors + u.max_vectors - 1) / u.max_vectors;
    for (int64_t p = 0, v = 0; p < count; ++p) {
        const int64_t wide = (vectors - v + count - p - 1) / (count - p), end = (v + wide) * u.lanes;
        const int last = static_cast<int>(end <= columns ? u.lanes : columns - end + u.lanes);
        all.push_back({v * u.lanes, static_cast<int>(wide), last, v * u.lanes});
        v += wide;
    }
    return all;
}

void run_sweep(const Unit& u, const Sweep& s, float* out, const float* in, const float* packed, const float* bias,
               bool accumulate, bool relu) {
    const auto steps = stretches(static_cast<int64_t>(s.taps.size()), s.length);
    const auto all = panels(u, s.columns);
    const int64_t depth = static_cast<int64_t>(s.taps.size()) * s.length, rows = s.rows();
    const int64_t deepest = std::min(DEPTH, depth);
    const int64_t tall = s.span > 1 ? std::min(EDGE_FLOATS / deepest / 12 * 12, ROWS) : ROWS;
    const int64_t blocks = (rows + tall - 1) / tall, count = static_cast<int64_t>(all.size());
    const int64_t shares = std::clamp<int64_t>((TASKS + blocks * s.groups - 1) / (blocks * s.groups), 1, count);

    parallel(blocks * s.groups * shares, [&](int64_t task) {
        const int64_t share = task % shares, group = task / shares % s.groups, begin = task / shares / s.groups * tall;
        Block block(s, begin, std::min(tall, rows - begin), out + group * s.columns, in + group * s.length);
        GemmBlock g{};
        g.in = block.in(), g.out = block.out(), g.pitch = ROWS, g.none = NOTHING;
        g.rows = std::min(tall, rows - begin);
        g.start = accumulate ? Start::out : bias ? Start::bias : Start::zero;
        for (const Stretch& step : steps) {
            block.aim(step);
            g.runs = step.taps, g.length = step.length;
            g.relu = relu && &step == &steps.back();
            for (int64_t p = cut(count, shares, share); p < cut(count, shares, share + 1); ++p) {
                const Panel& panel = all[p];
                g.vectors = panel.vectors, g.last = panel.last, g.column = panel.column;
                g.packed = packed + group * s.packed_pitch + panel.offset * depth +
                           (step.tap * s.length + step.first) * panel.vectors * u.lanes;
                g.bias = bias ? bias + group * s.columns + panel.column : nullptr;
                u.gemm(g);
            }
            g.start = Start::out;
        }
    });
}

}  // namespace layermem::cpu
