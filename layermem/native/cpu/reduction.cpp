#include "reduction.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "pool.h"
#include "unit.h"

namespace layermem::cpu {
namespace {

constexpr int64_t PIECE = 16384;  // elements of a task
constexpr int64_t COLUMNS = 256;  // of a task where inner > 1
constexpr int64_t TASKS = 64;     // of a search, each with a heap of its own
constexpr int64_t LANES = 16;     // of the widest unit

int64_t pieces_of(const Axis& s) { return (s.size + PIECE - 1) / PIECE; }

// Rows that fit into a task whole, or pieces of rows whose sums wait in scratch.
void reduce_rows(const Unit& u, const ReduceArgs& g, double* parts) {
    const Axis& s = g.axis;
    const int64_t pieces = pieces_of(s), step = std::max<int64_t>(1, PIECE / s.size);
    const auto finish = [&](int64_t o, double sum) {
        const float y = static_cast<float>(static_cast<double>(g.factor) * sum);
        g.out[o] = g.accumulate ? g.out[o] + y : y;
    };
    if (pieces == 1)
        return parallel((s.outer + step - 1) / step, [&](int64_t task) {
            for (int64_t o = task * step; o < std::min(s.outer, (task + 1) * step); ++o)
                finish(o, u.reduce_row(g, g.x + o * s.size, 0, s.size));
        });
    parallel(s.outer * pieces, [&](int64_t task) {
        const int64_t o = task / pieces, begin = task % pieces * PIECE;
        parts[task] = u.reduce_row(g, g.x + o * s.size, begin, std::min(s.size, begin + PIECE));
    });
    for (int64_t o = 0; o < s.outer; ++o) {
        double sum = 0;
        for (int64_t p = 0; p < pieces; ++p) sum += parts[o * pieces + p];
        finish(o, sum);
    }
}

void reduce_columns(const Unit& u, const ReduceArgs& g) {
    const Axis& s = g.axis;
    const int64_t chunks = (s.inner + COLUMNS - 1) / COLUMNS, count = s.outer * chunks;
    const int64_t step = std::max<int64_t>(1, PIECE / (s.size * std::min(COLUMNS, s.inner)));
    parallel((count + step - 1) / step, [&](int64_t task) {
        for (int64_t i = task * step; i < std::min(count, (task + 1) * step); ++i) {
            const int64_t begin = i % chunks * COLUMNS;
            u.reduce_columns(g, i / chunks, begin, std::min(s.inner, begin + COLUMNS));
        }
    });
}

struct Found {
    float value;
    int32_t place;
};

bool before(const Found& a, const Found& b) {
    const bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
    if (a_is_nan || b_is_nan) return a_is_nan != b_is_nan ? a_is_nan : a.place > b.place;
    return a.value != b.value ? a.value > b.value : a.place > b.place;
}

// The first `count` of a row by `before`, in that order: a heap whose top is the last of those kept.
void search(const Unit& u, const float* x, int64_t size, int64_t count, Found* heap) {
    for (int64_t i = 0; i < count; ++i) heap[i] = {x[i], static_cast<int32_t>(i)};
    std::make_heap(heap, heap + count, before);
    for (int64_t i = u.not_below(x, count, size, heap[0].value); i < size;) {
        const Found next{x[i], static_cast<int32_t>(i)};
        if (before(next, heap[0])) {
            std::pop_heap(heap, heap + count, before);
            heap[count - 1] = next;
            std::push_heap(heap, heap + count, before);
        }
        ++i;
        if ((i - count) % u.lanes == 0) i = u.not_below(x, i, size, heap[0].value);
    }
    std::sort_heap(heap, heap + count, before);
}

void put(const Largest& g, int64_t row, int64_t k, float place, float value) {
    const int64_t at = row / g.inner * g.pitch + row % g.inner + k * g.inner;
    if (g.place) g.place[at] = place;
    if (g.value) g.value[at] = value;
}

int64_t heap_bytes(int64_t count) { return padded(count * static_cast<int64_t>(sizeof(Found))); }

}  // namespace

int64_t reduce_workspace(const Axis& s) {
    s.check();
    return s.inner == 1 && pieces_of(s) > 1 ? padded(s.outer * pieces_of(s) * static_cast<int64_t>(sizeof(double))) : 0;
}

Launch reduce(const Axis& s, Term term, float* y, const float* x, float factor, bool accumulate, void* scratch) {
    s.check();
    const ReduceArgs g{s, term, y, x, nullptr, factor, accumulate};
    return [=, u = &unit()] {
        if (s.inner == 1)
            reduce_rows(*u, g, static_cast<double*>(scratch));
        else
            reduce_columns(*u, g);
    };
}

Launch reduce_backward(const Axis& s, Term term, float* dx, const float* x, const float* dy, float factor,
                       bool accumulate) {
    s.check();
    const ReduceArgs g{s, term, dx, term == Term::plain ? nullptr : x, dy, factor, accumulate};
    return [=, u = &unit()] {
        const int64_t lines = s.outer * s.size, step = std::max<int64_t>(1, PIECE / s.inner);
        parallel((lines + step - 1) / step,
                 [&](int64_t i) { u->reduce_back(g, i * step, std::min(lines, (i + 1) * step)); });
    };
}

int64_t largest_workspace(int64_t count) { return TASKS * heap_bytes(count); }

Launch largest(const Largest& g, void* scratch) {
    if (g.rows < 1 || g.inner < 1 || g.rows % g.inner)
        throw std::invalid_argument("largest: rows come in blocks of inner");
    if (g.count < 1 || g.count > g.size) throw std::invalid_argument("largest: count must be from 1 to size");
    return [=, u = &unit()] {
        const int64_t tasks = std::min(TASKS, g.rows);
        parallel(tasks, [&](int64_t task) {
            auto* heap = reinterpret_cast<Found*>(static_cast<char*>(scratch) + task * heap_bytes(g.count));
            const int64_t begin = cut(g.rows, tasks, task), end = cut(g.rows, tasks, task + 1);
            const int64_t step = g.count == 1 && g.size <= SHORT ? u->lanes : 1;
            for (int64_t row = begin; row < end; row += step) {
                const int64_t rows = std::min(step, end - row);
                float place[LANES], value[LANES];
                if (step > 1 && u->largest_of_few(g.x + row * g.size, rows, g.size, place, value)) {
                    for (int64_t i = 0; i < rows; ++i) put(g, row + i, 0, place[i], value[i]);
                    continue;
                }
                for (int64_t i = row; i < row + rows; ++i) {
                    search(*u, g.x + i * g.size, g.size, g.count, heap);
                    for (int64_t k = 0; k < g.count; ++k)
                        put(g, i, k, static_cast<float>(heap[k].place), heap[k].value);
                }
            }
        });
    };
}

}  // namespace layermem::cpu
