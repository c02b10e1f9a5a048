// y [m][n] = x [m][k] w [n][k]', dx = dy w, dw = dy' x.  Usually m, the batch, is small and w is large, so every driver
// reads w in long lines, as few times as it can, and fetches what it reads next while it multiplies:
//
//     fprop            dot products of rows of x and rows of w: both are contiguous along k, nothing is packed
//     dgrad, m <= 12   sums of rows of w, each register of w loaded once for all rows of x
//     dgrad, m > 12    GEMM over pieces of w, packed on the stack of the task by the first tile that multiplies them
//     wgrad            as a 1x1 convolution; of a band of w, tile by tile as backward_update
//     backward_update  a tile of dw at a time is computed and consumed by the update rule: dw is never stored whole
#include "cpu/kernels/inner_product.h"

#include <algorithm>
#include <stdexcept>

#include "cpu/kernels/activation.h"
#include "cpu/kernels/convolution.h"
#include "cpu/kernels/registry.h"
#include "cpu/microkernels/gemm.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

// fprop
constexpr int64_t kTaskOutputs = 24;  // rows of w in a task, a multiple of every tile width
constexpr int64_t kMaxChain = 2048;   // reduction steps between two visits to y

// dgrad with few rows of x: bound by reading w, which packing would double; with more, dx leaves the first-level cache
constexpr int64_t kFewRows = 12;
constexpr int64_t kStripColumns = 1024;  // most columns of w in a task: long lines, while dx stays in cache

// dgrad with more rows: w is packed in pieces
constexpr int64_t kPackColumns = 256;  // columns of w in a task
constexpr int64_t kPackRows = 64;      // and rows of it that the task packs at a time: 64 KiB

// backward_update
constexpr int64_t kUpdateRows = 12;          // rows of w in a gradient tile, a multiple of every tile height
constexpr int64_t kUpdateColumns = 1024;     // and columns: 48 KiB of gradient
constexpr int64_t kUpdateDepth = kMaxPairs;  // rows of x whose products are added to a tile at a time
constexpr int64_t kMinUpdateTasks = 32;

// Describes the product as a 1x1 convolution of 1x1 images.
ConvProblem as_convolution(int64_t m, int64_t n, int64_t k) { return {m, k, 1, 1, n, 1, 1, 1, 1, 0, 0, 1, 1, 1}; }
ConvProblem as_convolution(const RowSlice& rows, int64_t n, int64_t k) {
    ConvProblem p = as_convolution(rows.count, n, k);
    p.first = rows.first;
    p.items = rows.all;
    return p;
}

// dx[:, first, first + columns), by GEMM over packed pieces of w.
void dgrad_columns(const GemmKernels& kernels, int64_t m, int64_t n, int64_t k, float* dx, const float* dy,
                   int64_t dy_pitch, const float* w, bool accumulate, int64_t first, int64_t columns) {
    alignas(64) float packed[kPackRows * kPackColumns];
    const float* in_rows[kBlockRows];
    float* out_rows[kBlockRows];
    const int64_t lanes = kernels.lanes;
    for (int64_t step = 0; step < n; step += kPackRows) {
        const int64_t depth = std::min(kPackRows, n - step);
        for (int64_t c = 0; c < columns;) {  // one panel after the other
            const int64_t left = columns - c, vectors = std::min<int64_t>(kernels.max_vectors, ceil_div(left, lanes));
            const int64_t width = vectors * lanes, used = std::min(left, width);
            GemmBlock args{};
            args.to = packed;
            args.unpacked_pitch = k;
            if (used == width)
                args.unpacked = w + step * k + first + c;
            else
                kernels.pack_rows(packed, w + step * k + first + c, k, depth, used, width);
            args.in_rows = in_rows;
            args.out_rows = out_rows;
            args.pitch = kBlockRows;
            args.slices = 1;
            args.length = depth;
            args.packed = packed;
            args.column = first + c;
            args.vectors = static_cast<int>(vectors);
            args.last_lanes = static_cast<int>(used - width + lanes);
            args.init = step > 0 || accumulate ? Init::out : Init::zero;
            const bool same_rows = c + width < columns;  // the next panel is of these rows of w, or of those behind
            const int64_t next_step = same_rows ? step : step + depth;
            args.next = next_step + depth <= n ? w + next_step * k + first + (same_rows ? c + width : 0) : nullptr;
            args.next_pitch = k;
            for (int64_t row = 0; row < m; row += kBlockRows, args.next = args.unpacked = nullptr) {
                args.rows = std::min(kBlockRows, m - row);
                for (int64_t i = 0; i < kBlockRows; ++i) {  // entries beyond the rows repeat the last one
                    const int64_t at = row + std::min(i, args.rows - 1);
                    in_rows[i] = dy + at * dy_pitch + step;
                    out_rows[i] = dx + at * k;
                }
                kernels.gemm(args);
            }
            c += width;
        }
    }
}

// A task is a strip of columns, which begins at a multiple of 16: a register of the widest ISA.
Launch dgrad_few_rows(int64_t m, int64_t n, int64_t k, float* dx, const float* dy, int64_t dy_pitch, const float* w,
                      bool accumulate) {
    return [=, &kernels = gemm_kernels()] {
        const int64_t parts = std::clamp<int64_t>(k / 64, 1, std::max<int64_t>(16, ceil_div(k, kStripColumns)));
        parallel_for(parts, [&](int64_t i) {
            const int64_t begin = chunk_begin(k / 16, parts, i) * 16;
            const int64_t end = i + 1 == parts ? k : chunk_begin(k / 16, parts, i + 1) * 16;
            const Init init = accumulate ? Init::out : Init::zero;
            kernels.rank_update({dy, w + begin, dy_pitch, k, n, m, end - begin, dx + begin, k, init});
        });
    };
}

// A tile of the gradient, and where it is computed.
struct GradientTile {
    int64_t first, rows, column, columns;  // w[first..first + rows)[column..column + columns)
    float* out;
    int64_t pitch;
    bool accumulate;
};

// The sums over m run in pieces of kUpdateDepth rows, in order.
void gradient_tile(const GemmKernels& kernels, int64_t m, int64_t k, const float* x, const float* dy, int64_t dy_pitch,
                   const GradientTile& tile) {
    const float *x_rows[kUpdateDepth], *dy_rows[kUpdateDepth];
    OuterBlock block{};
    block.x = x_rows;
    block.d = dy_rows;
    block.d_strip = kStripRows;
    block.rows = tile.rows;
    block.columns = tile.columns;
    block.out = tile.out;
    block.pitch = tile.pitch;
    block.init = tile.accumulate ? Init::out : Init::zero;
    for (int64_t row = 0; row < m; row += kUpdateDepth) {
        block.count = std::min(kUpdateDepth, m - row);
        for (int64_t i = 0; i < block.count; ++i) {
            x_rows[i] = x + (row + i) * k + tile.column;
            dy_rows[i] = dy + (row + i) * dy_pitch + tile.first;
        }
        kernels.outer(block);
        block.init = Init::out;
    }
}

// The tiles of an n x k gradient, in parallel: body(first, rows, column, columns) for each.
template <class Body>
void for_each_tile(int64_t n, int64_t k, const Body& body) {
    const int64_t blocks = ceil_div(n, kUpdateRows), strips = ceil_div(k, kUpdateColumns);
    const int64_t shares = std::clamp<int64_t>(ceil_div(kMinUpdateTasks, blocks), 1, strips);
    // Rows [first, first + rows) of w, in the strips of one share.
    parallel_for(blocks * shares, [&](int64_t task) {
        const int64_t first = task / shares * kUpdateRows, rows = std::min(kUpdateRows, n - first);
        const int64_t share = task % shares;
        for (int64_t s = chunk_begin(strips, shares, share); s < chunk_begin(strips, shares, share + 1); ++s)
            body(first, rows, s * kUpdateColumns, std::min(kUpdateColumns, k - s * kUpdateColumns));
    });
}

// Elements from one row of dy to the next; 0: dy has only the columns of w.
int64_t pitch_of(int64_t n, int64_t dy_outputs) {
    if (dy_outputs && dy_outputs < n)
        throw std::invalid_argument("inner product: dy has fewer columns than w has rows");
    return dy_outputs ? dy_outputs : n;
}

}  // namespace

Launch inner_product_fprop(int64_t m, int64_t n, int64_t k, float* y, const float* x, const float* w,
                           OrNull<const float> bias, bool relu, const ReluMask& mask) {
    as_convolution(m, n, k).check();
    return [=, &kernels = gemm_kernels(), &activation = activation_kernels()] {
        parallel_for_ranges(n, kTaskOutputs, [&](int64_t begin, int64_t end) {
            DotBlock args{};
            args.rows = m;
            args.columns = end - begin;
            args.a_pitch = args.b_pitch = k;
            args.out = y + begin;
            args.pitch = n;
            args.bias = bias ? bias + begin : nullptr;
            // Long sums are cut: a chain of additions per register loses digits with its length.
            for (int64_t step = 0; step < k; step += kMaxChain) {
                args.length = std::min(kMaxChain, k - step);
                args.a = x + step;
                args.b = w + begin * k + step;
                args.init = step > 0 ? Init::out : bias ? Init::bias : Init::zero;
                args.relu = relu && step + args.length == k;
                if (step + args.length < k)
                    args.next = args.b + args.length;
                else
                    args.next = end + args.columns <= n ? w + end * k : nullptr;
                kernels.dot(args);
            }
        });
        if (mask.bits) write_mask(activation, m * n, y, mask);
    };
}

Launch inner_product_dgrad(int64_t m, int64_t n, int64_t k, float* dx, const float* dy, const float* w, bool accumulate,
                           int64_t dy_outputs) {
    as_convolution(m, n, k).check();
    const int64_t dy_pitch = pitch_of(n, dy_outputs);
    if (m <= kFewRows) return dgrad_few_rows(m, n, k, dx, dy, dy_pitch, w, accumulate);
    return [=, &kernels = gemm_kernels()] {
        parallel_for_ranges(k, kPackColumns, [&](int64_t begin, int64_t end) {
            dgrad_columns(kernels, m, n, k, dx, dy, dy_pitch, w, accumulate, begin, end - begin);
        });
    };
}

int64_t inner_product_wgrad_workspace_bytes(int64_t m, int64_t n, int64_t k, int64_t first, int64_t of) {
    return conv_wgrad_workspace_bytes(as_convolution(row_slice(m, first, of), n, k));
}

int64_t inner_product_wgrad_carry_bytes(int64_t m, int64_t n, int64_t k) {
    return conv_wgrad_carry_bytes(as_convolution(m, n, k));
}

Launch inner_product_wgrad(int64_t m, int64_t n, int64_t k, float* dw, const float* x, const float* dy, bool accumulate,
                           OrNull<void> workspace, int64_t first, int64_t of, void* carry) {
    return conv_wgrad(as_convolution(row_slice(m, first, of), n, k), dw, x, dy, accumulate, workspace, carry);
}

Launch inner_product_band_wgrad(int64_t m, int64_t n, int64_t k, float* dw, const float* x, const float* dy,
                                int64_t dy_outputs, bool accumulate) {
    as_convolution(m, n, k).check();
    const int64_t dy_pitch = pitch_of(n, dy_outputs);
    return [=, &kernels = gemm_kernels()] {
        for_each_tile(n, k, [&](int64_t first, int64_t rows, int64_t column, int64_t columns) {
            float* out = dw + first * k + column;
            gradient_tile(kernels, m, k, x, dy, dy_pitch, {first, rows, column, columns, out, k, accumulate});
        });
    };
}

// This saves the bytes of the gradient, which is as large as w.  A task owns its tile of w, so updates do not race; dx
// must have been computed before, since it reads w.
UpdateLaunch inner_product_backward_update(int64_t m, int64_t n, int64_t k, const float* x, const float* dy,
                                           const Update& args, int64_t dy_outputs) {
    as_convolution(m, n, k).check();
    check_update(args);
    const int64_t dy_pitch = pitch_of(n, dy_outputs);
    return [=, &kernels = gemm_kernels(), &updates = update_kernels()](float rate, float gain, float shrink) {
        for_each_tile(n, k, [&](int64_t first, int64_t rows, int64_t column, int64_t columns) {
            alignas(64) float tile[kUpdateRows * kUpdateColumns];
            gradient_tile(kernels, m, k, x, dy, dy_pitch, {first, rows, column, columns, tile, kUpdateColumns, false});
            for (int64_t i = 0; i < rows; ++i) {
                const int64_t at = (first + i) * k + column;
                Update now = args;
                now.w += at;
                now.h0 = args.h0 ? args.h0 + at : nullptr;
                now.h1 = args.h1 ? args.h1 + at : nullptr;
                now.dw = tile + i * kUpdateColumns;
                now.rate = rate;
                now.gain = gain;
                now.shrink = shrink;
                updates.update(now, 0, columns);
            }
        });
    };
}

LAYERMEM_KERNEL(inner_product_fprop)
LAYERMEM_KERNEL(inner_product_dgrad)
LAYERMEM_KERNEL(inner_product_wgrad_workspace_bytes)
LAYERMEM_KERNEL(inner_product_wgrad_carry_bytes)
LAYERMEM_KERNEL(inner_product_wgrad)
LAYERMEM_KERNEL(inner_product_band_wgrad)
LAYERMEM_KERNEL(inner_product_backward_update)

}  // namespace layermem::cpu
