#include "moves.h"

#include <algorithm>
#include <stdexcept>

#include "pool.h"
#include "unit.h"

namespace layermem::cpu {
namespace {

constexpr int64_t TASK_FLOATS = 16384;

struct Loop {
    int64_t size, out, in;
};

// Neighbouring loops that walk both sides as one are joined, so that rows become as long as they can be.
std::vector<Loop> joined(const std::vector<int64_t>& shape, const std::vector<int64_t>& out,
                         const std::vector<int64_t>& in) {
    std::vector<Loop> loops;
    for (size_t i = 0; i < shape.size(); ++i) {
        if (shape[i] == 1) continue;
        const Loop next{shape[i], out[i], in[i]};
        if (!loops.empty() && loops.back().out == next.out * next.size && loops.back().in == next.in * next.size)
            loops.back() = {loops.back().size * next.size, next.out, next.in};
        else
            loops.push_back(next);
    }
    return loops;
}

}  // namespace

Launch copy_rows(const Rows& g) {
    if (g.rows < 0 || g.width < 0) throw std::invalid_argument("copy_rows: rows and width must not be negative");
    return [=, u = &unit()] {
        if (g.width == 0) return;
        if (g.rows <= 2) {  // long rows, as of a concatenation along the first axis
            for (int64_t r = 0; r < g.rows; ++r)
                parallel((g.width + TASK_FLOATS - 1) / TASK_FLOATS, [&](int64_t i) {
                    Rows part = g;
                    part.out += r * g.out_pitch + i * TASK_FLOATS, part.in += r * g.in_pitch + i * TASK_FLOATS;
                    part.width = std::min(TASK_FLOATS, g.width - i * TASK_FLOATS);
                    u->copy_rows(part, 0, 1);
                });
            return;
        }
        const int64_t step = std::max<int64_t>(1, TASK_FLOATS / g.width);
        parallel((g.rows + step - 1) / step,
                 [&](int64_t i) { u->copy_rows(g, i * step, std::min(g.rows, (i + 1) * step)); });
    };
}

Launch transpose(const Transpose& g) {
    if (g.n < 0 || g.rows < 1 || g.columns < 1) throw std::invalid_argument("transpose: sizes must be at least 1");
    return [=, u = &unit()] {
        const int64_t step = std::max<int64_t>(16, TASK_FLOATS / g.columns / 16 * 16),
                      parts = (g.rows + step - 1) / step;
        parallel(g.n * parts, [&](int64_t task) {
            const int64_t begin = task % parts * step;
            u->transpose(g, task / parts, begin, std::min(g.rows, begin + step));
        });
    };
}

Launch copy_block(float* out, const float* in, std::vector<int64_t> shape, std::vector<int64_t> out_strides,
                  std::vector<int64_t> in_strides, bool accumulate) {
    if (shape.size() != out_strides.size() || shape.size() != in_strides.size())
        throw std::invalid_argument("copy_block: shape and strides must have as many axes as each other");
    auto loops = joined(shape, out_strides, in_strides);
    if (loops.empty()) loops.push_back({1, 1, 1});
    const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
    return [=, u = &unit()] {
        if (empty) return;
        const Loop last = loops.back();
        int64_t rows = 1;
        for (size_t i = 0; i + 1 < loops.size(); ++i) rows *= loops[i].size;
        const int64_t step = std::max<int64_t>(1, TASK_FLOATS / last.size);
        parallel((rows + step - 1) / step, [&](int64_t task) {
            for (int64_t row = task * step; row < std::min(rows, (task + 1) * step); ++row) {
                int64_t rest = row, to = 0, from = 0;
                for (size_t i = loops.size() - 1; i-- > 0; rest /= loops[i].size) {
                    to += rest % loops[i].size * loops[i].out;
                    from += rest % loops[i].size * loops[i].in;
                }
                if (last.out == 1 && last.in == 1) {
                    u->copy_rows({out + to, in + from, 1, last.size, 0, 0, accumulate}, 0, 1);
                    continue;
                }
                for (int64_t i = 0; i < last.size; ++i) {
                    float& target = out[to + i * last.out];
                    const float value = in[from + i * last.in];
                    target = accumulate ? target + value : value;
                }
            }
        });
    };
}

}  // namespace layermem::cpu
