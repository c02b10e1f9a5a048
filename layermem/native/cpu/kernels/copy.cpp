// Copies are bound by memory: tasks only spread them over threads, and runs are kept as long as possible.
#include "cpu/kernels/copy.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "cpu/kernels/registry.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

constexpr int64_t kTaskFloats = 16384;
constexpr int64_t kLeastTile = 4;  // side of a matrix that is worth a transposition

// One axis of a copy: `size` elements, `out` and `in` floats apart.
struct Loop {
    int64_t size, out, in;
};

// Axes of size 1 are dropped, and neighbouring axes that are contiguous with each other on both sides become one, so
// that the innermost loop is as long as it can be.  Outermost axis first.
std::vector<Loop> merge_axes(const std::vector<int64_t>& shape, const std::vector<int64_t>& out,
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

// The offsets of index number `at`, counted through the loops with the innermost first.
struct Offsets {
    int64_t out, in;
};

Offsets offsets_of(const std::vector<Loop>& outer, int64_t at) {
    Offsets offsets{0, 0};
    for (size_t i = outer.size(); i-- > 0; at /= outer[i].size) {
        offsets.out += at % outer[i].size * outer[i].out;
        offsets.in += at % outer[i].size * outer[i].in;
    }
    return offsets;
}

// For every index of `outer` a matrix, whose rows lie along `in` and whose columns lie along `out`.  A task is a band
// of rows of one matrix.
Launch transpose_block(float* out, const float* in, const std::vector<Loop>& outer, const Loop& rows,
                       const Loop& columns, bool accumulate) {
    int64_t matrices = 1;
    for (const Loop& loop : outer) matrices *= loop.size;
    return [=, &kernels = copy_kernels()] {
        const int64_t step = std::max<int64_t>(16, kTaskFloats / columns.size / 16 * 16);
        const int64_t parts = ceil_div(rows.size, step);
        parallel_for(matrices * parts, [&](int64_t task) {
            const Offsets at = offsets_of(outer, task / parts);
            const int64_t begin = task % parts * step;
            const Transpose args{out + at.out, in + at.in, 1,       rows.size,
                                 columns.size, accumulate, rows.in, columns.out};
            kernels.transpose(args, 0, begin, std::min(rows.size, begin + step));
        });
    };
}

// One run of the innermost loop: through the microkernel where both sides are contiguous, else element by element.
void copy_run(const CopyKernels& kernels, float* out, const float* in, const Loop& loop, bool accumulate) {
    if (loop.out == 1 && loop.in == 1) return kernels.copy_rows({out, in, 1, loop.size, 0, 0, accumulate}, 0, 1);
    for (int64_t i = 0; i < loop.size; ++i) {
        float& target = out[i * loop.out];
        const float value = in[i * loop.in];
        target = accumulate ? target + value : value;
    }
}

}  // namespace

// Tasks of about kTaskFloats floats: whole rows where there are several, pieces of a row otherwise.  The caller
// guarantees that rows of `out` do not overlap.
Launch copy_rows(int64_t rows, int64_t width, float* out, int64_t out_pitch, const float* x, int64_t x_pitch,
                 bool accumulate) {
    const StridedCopy args{out, x, rows, width, out_pitch, x_pitch, accumulate};
    if (args.rows < 0 || args.width < 0) throw std::invalid_argument("copy_rows: rows and width must not be negative");
    return [=, &kernels = copy_kernels()] {
        if (args.width == 0) return;
        if (args.rows > 2) {
            const int64_t step = std::max<int64_t>(1, kTaskFloats / args.width);
            parallel_for_ranges(args.rows, step,
                                [&](int64_t begin, int64_t end) { kernels.copy_rows(args, begin, end); });
            return;
        }
        // Copies one or two long rows, as in a concatenation along the first axis: tasks are pieces of a row.
        for (int64_t row = 0; row < args.rows; ++row)
            parallel_for_ranges(args.width, kTaskFloats, [&](int64_t begin, int64_t end) {
                StridedCopy part = args;
                part.out += row * args.out_pitch + begin;
                part.in += row * args.in_pitch + begin;
                part.width = end - begin;
                kernels.copy_rows(part, 0, 1);
            });
    };
}

Launch copy_bytes(int64_t rows, int64_t width, char* out, int64_t out_pitch, const char* x, int64_t x_pitch) {
    if (rows < 0 || width < 0) throw std::invalid_argument("copy_bytes: rows and width must not be negative");
    constexpr int64_t kTaskBytes = kTaskFloats * 4;
    return [=] {
        if (width == 0) return;
        const int64_t step = std::max<int64_t>(1, kTaskBytes / width);  // rows of a task
        const int64_t pieces =
            step > 1 ? 1 : ceil_div(width, kTaskBytes);  // pieces of a row, where a row makes many tasks
        parallel_for(ceil_div(rows, step) * pieces, [&](int64_t task) {
            const int64_t first = task / pieces * step, last = std::min(rows, first + step);
            const int64_t begin = task % pieces * kTaskBytes;
            const int64_t end = pieces == 1 ? width : std::min(width, begin + kTaskBytes);
            for (int64_t row = first; row < last; ++row)
                std::memcpy(out + row * out_pitch + begin, x + row * x_pitch + begin, static_cast<size_t>(end - begin));
        });
    };
}

// n matrices [rows][columns] -> [columns][rows]; a task is a band of rows of one matrix.
Launch transpose(int64_t n, int64_t rows, int64_t columns, float* out, const float* in, bool accumulate) {
    if (n < 0 || rows < 1 || columns < 1) throw std::invalid_argument("transpose: sizes must be at least 1");
    return [=, &kernels = copy_kernels()] {
        const Transpose args{out, in, n, rows, columns, accumulate, columns, rows};
        // Rows of a task: a multiple of the 16 rows of a tile.
        const int64_t step = std::max<int64_t>(16, kTaskFloats / args.columns / 16 * 16);
        const int64_t parts = ceil_div(args.rows, step);
        parallel_for(args.n * parts, [&](int64_t task) {
            const int64_t begin = task % parts * step;
            kernels.transpose(args, task / parts, begin, std::min(args.rows, begin + step));
        });
    };
}

Launch copy_block(const std::vector<int64_t>& shape, float* out, const std::vector<int64_t>& out_strides,
                  const float* x, const std::vector<int64_t>& x_strides, bool accumulate) {
    if (shape.size() != out_strides.size() || shape.size() != x_strides.size())
        throw std::invalid_argument("copy_block: shape and strides must have the same number of axes");
    auto outer = merge_axes(shape, out_strides, x_strides);
    Loop inner{1, 1, 1};
    if (!outer.empty()) {
        inner = outer.back();
        outer.pop_back();
    }
    int64_t runs = std::find(shape.begin(), shape.end(), 0) == shape.end() ? 1 : 0;
    for (const Loop& loop : outer) runs *= loop.size;
    // Runs along `out` whose elements lie apart in `in`, where another axis lies along `in`: transposed tiles.
    const auto along_in = std::find_if(outer.begin(), outer.end(), [](const Loop& loop) { return loop.in == 1; });
    if (runs > 0 && inner.out == 1 && inner.in > 1 && along_in != outer.end() && along_in->size >= kLeastTile &&
        inner.size >= kLeastTile) {
        const Loop columns = *along_in;
        outer.erase(along_in);
        return transpose_block(out, x, outer, inner, columns, accumulate);
    }
    return [=, &kernels = copy_kernels()] {
        if (runs == 0) return;
        const int64_t step = std::max<int64_t>(1, kTaskFloats / inner.size);
        parallel_for_ranges(runs, step, [&](int64_t begin, int64_t end) {
            for (int64_t run = begin; run < end; ++run) {
                const Offsets at = offsets_of(outer, run);
                copy_run(kernels, out + at.out, x + at.in, inner, accumulate);
            }
        });
    };
}

LAYERMEM_KERNEL(copy_rows)
LAYERMEM_KERNEL(copy_bytes)
LAYERMEM_KERNEL(transpose)
LAYERMEM_KERNEL(copy_block)

}  // namespace layermem::cpu
