// Tasks depend on the shape only, and partial sums are added in order, so results do not depend on the number of
// threads.
//
// Rounding: microkernels add blocks of 64 to 1024 elements in float, and then the sums of blocks, so that the error
// does not grow with the length of the axis.
#include "cpu/kernels/reduction.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "cpu/kernels/element_tasks.h"
#include "cpu/kernels/registry.h"
#include "cpu/kernels/stored.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

constexpr int64_t kReducedColumns = 256;  // columns of a task where inner > 1
constexpr int64_t kMaxSearchTasks = 64;   // tasks of top_k, each with its own heap
constexpr int64_t kMaxLanes = 16;         // lanes of the widest ISA

// -- Sums along an axis -----------------------------------------------------------------------------------------------

// A row longer than a task is summed in parts, whose sums wait in the workspace: doubles [outer][parts].
int64_t row_parts(const Axis& axis) { return ceil_div(axis.size, kTaskElements); }

void reduce_rows(const ReductionKernels& kernels, const ReduceArgs& args, double* partial_sums) {
    const Axis& axis = args.axis;
    const int64_t parts = row_parts(axis);
    const auto finish = [&](int64_t row, double sum) {
        const float y = static_cast<float>(static_cast<double>(args.factor) * sum);
        args.out[row] = args.accumulate ? args.out[row] + y : y;
    };
    if (parts == 1) {  // several whole rows per task
        const int64_t step = std::max<int64_t>(1, kTaskElements / axis.size);
        parallel_for_ranges(axis.outer, step, [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row)
                finish(row, kernels.reduce_row(args, args.x + row * axis.size, 0, axis.size));
        });
        return;
    }
    parallel_for(axis.outer * parts, [&](int64_t task) {
        const int64_t row = task / parts, begin = task % parts * kTaskElements;
        partial_sums[task] =
            kernels.reduce_row(args, args.x + row * axis.size, begin, std::min(axis.size, begin + kTaskElements));
    });
    for (int64_t row = 0; row < axis.outer; ++row) {
        double sum = 0;
        for (int64_t part = 0; part < parts; ++part) sum += partial_sums[row * parts + part];
        finish(row, sum);
    }
}

// inner > 1: lanes are columns.  A task sums some strips of at most kReducedColumns columns, each over the whole axis.
void reduce_columns(const ReductionKernels& kernels, const ReduceArgs& args) {
    const Axis& axis = args.axis;
    const int64_t strips = ceil_div(axis.inner, kReducedColumns);
    const int64_t step = std::max<int64_t>(1, kTaskElements / (axis.size * std::min(kReducedColumns, axis.inner)));
    parallel_for_ranges(axis.outer * strips, step, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
            const int64_t begin = i % strips * kReducedColumns;
            kernels.reduce_columns(args, i / strips, begin, std::min(axis.inner, begin + kReducedColumns));
        }
    });
}

// -- The k largest ----------------------------------------------------------------------------------------------------

struct Candidate {
    float value;
    int32_t index;
};

// Whether a comes before b in the output: NaN first, then larger values; among equal values the later one.
bool before(const Candidate& a, const Candidate& b) {
    const bool a_is_nan = std::isnan(a.value), b_is_nan = std::isnan(b.value);
    if (a_is_nan || b_is_nan) return a_is_nan != b_is_nan ? a_is_nan : a.index > b.index;
    return a.value != b.value ? a.value > b.value : a.index > b.index;
}

// The first k of a row in the order of `before`, in O(size + hits log k): a heap whose top is the last of those kept.
// Elements below the top are skipped by find_not_below a register at a time.
void search(const ReductionKernels& kernels, const float* x, int64_t size, int64_t k, Candidate* heap) {
    for (int64_t i = 0; i < k; ++i) heap[i] = {x[i], static_cast<int32_t>(i)};
    std::make_heap(heap, heap + k, before);
    for (int64_t i = kernels.find_not_below(x, k, size, heap[0].value); i < size;) {
        const Candidate next{x[i], static_cast<int32_t>(i)};
        if (before(next, heap[0])) {
            std::pop_heap(heap, heap + k, before);
            heap[k - 1] = next;
            std::push_heap(heap, heap + k, before);
        }
        ++i;
        if ((i - k) % kernels.lanes == 0) i = kernels.find_not_below(x, i, size, heap[0].value);
    }
    std::sort_heap(heap, heap + k, before);
}

void write(const TopK& args, int64_t row, int64_t rank, float index, float value) {
    const int64_t at = row / args.inner * args.pitch + row % args.inner + rank * args.inner;
    if (args.index) args.index[at] = index;
    if (args.value) args.value[at] = value;
}

int64_t heap_bytes(int64_t k) { return aligned_bytes<Candidate>(k); }

// Rows [begin, end).  The largest of short rows is found for `lanes` rows at a time.
void search_rows(const ReductionKernels& kernels, const TopK& args, int64_t begin, int64_t end, Candidate* heap) {
    const int64_t step = args.k == 1 && args.size <= kShortRow ? kernels.lanes : 1;
    for (int64_t row = begin; row < end; row += step) {
        const int64_t rows = std::min(step, end - row);
        float index[kMaxLanes], value[kMaxLanes];
        if (step > 1 && kernels.max_of_short_rows(index, value, args.x + row * args.size, rows, args.size)) {
            for (int64_t i = 0; i < rows; ++i) write(args, row + i, 0, index[i], value[i]);
            continue;
        }
        for (int64_t i = row; i < row + rows; ++i) {
            search(kernels, args.x + i * args.size, args.size, args.k, heap);
            for (int64_t rank = 0; rank < args.k; ++rank)
                write(args, i, rank, static_cast<float>(heap[rank].index), heap[rank].value);
        }
    }
}

// Parts of column_sums, each of at least 32768 elements and 16 at most: their sums wait in the workspace,
// [parts][columns].
constexpr int64_t kSlab = 64;

int64_t column_parts(int64_t rows, int64_t columns) { return std::clamp<int64_t>(rows * columns / 32768, 1, 16); }

// The sum of a part of column_sums, which slices extend.  It has the bits of sum_rows, wherever slices end.
struct ColumnPart {
    int64_t columns, rows;  // of the whole part
    float *sum, *block;     // [columns]: of all complete blocks, and of the block that is not complete
    bool accumulate;        // whether the sum does not begin at 0

    // Adds rows [begin, end) of the part, which are those at `in`.
    void add(const ReductionKernels& kernels, const float* in, int64_t begin, int64_t end) const {
        for (int64_t row = begin; row < end;) {
            const int64_t first = row / kSumBlockRows * kSumBlockRows, last = std::min(rows, first + kSumBlockRows);
            const float* from = in + (row - begin) * columns;
            if (row == first && last <= end) {  // whole blocks, as many as there are
                const int64_t stop = end == rows ? end : end / kSumBlockRows * kSumBlockRows;
                kernels.sum_rows(sum, from, columns, stop - row, columns, accumulate || row > 0);
                row = stop;
                continue;
            }
            const int64_t stop = std::min(last, end);
            kernels.add_rows(block, from, columns, stop - row, columns, row > first);
            if (stop == last) kernels.sum_rows(sum, block, columns, 1, columns, accumulate || first > 0);
            row = stop;
        }
    }
};

// The sums of ReductionKernels::sum_rows of rows in 16 bits, which are widened a block of kSlab columns at a time.
void sum_stored_rows(const ReductionKernels& kernels, const Conversion& convert, int64_t columns, float* out,
                     const float* in, int64_t begin, int64_t end, bool accumulate) {
    alignas(64) float block[kSumBlockRows * kSlab];
    for (int64_t row = begin; row < end; row += kSumBlockRows)
        for (int64_t c = 0; c < columns; c += kSlab) {
            const int64_t rows = std::min(end - row, kSumBlockRows), width = std::min(columns - c, kSlab);
            for (int64_t i = 0; i < rows; ++i) convert.read(in, (row + i) * columns + c, width, block + i * width);
            kernels.sum_rows(out + c, block, width, rows, width, accumulate || row > begin);
        }
}

// column_sums of rows of a batch, with the parts and blocks of the whole batch.
Launch column_sums_of_slice(const RowSlice& slice, int64_t columns, float* out, const float* in, bool accumulate,
                            void* carry) {
    if (!carry) throw std::invalid_argument("column_sums: a slice of a batch needs what slices carry");
    const int64_t parts = column_parts(slice.all, columns), end = slice.first + slice.count;
    return [=, &kernels = reduction_kernels()] {
        float *sums = static_cast<float*>(carry), *block = sums + parts * columns;
        if (slice.first == 0 && parts == 1 && !accumulate) std::fill_n(sums, columns, 0.0f);
        const auto add = [&](int64_t i, int64_t from, int64_t to) {  // rows [from, to) of the batch, in part i
            const int64_t first = chunk_begin(slice.all, parts, i), last = chunk_begin(slice.all, parts, i + 1);
            const ColumnPart part{columns, last - first, sums + i * columns, block, parts == 1};
            part.add(kernels, in + (from - slice.first) * columns, from - first, to - first);
        };
        // First completes the block that the last slice has begun.
        int64_t begun = slice.first;
        for (int64_t i = 0; i < parts; ++i) {
            const int64_t first = chunk_begin(slice.all, parts, i), last = chunk_begin(slice.all, parts, i + 1);
            if (slice.first <= first || slice.first >= last) continue;
            begun = std::min({end, last, first + ceil_div(slice.first - first, kSumBlockRows) * kSumBlockRows});
            if (begun > slice.first) add(i, slice.first, begun);
        }
        parallel_for(parts, [&](int64_t i) {
            const int64_t from = std::max(begun, chunk_begin(slice.all, parts, i));
            const int64_t to = std::min(end, chunk_begin(slice.all, parts, i + 1));
            if (from < to) add(i, from, to);
        });
        if (!slice.is_last()) return;
        if (parts == 1)
            std::copy_n(sums, columns, out);
        else
            kernels.sum_rows(out, sums, columns, parts, columns, accumulate);
    };
}

}  // namespace

void Axis::check() const {
    if (outer < 1 || size < 1 || inner < 1) throw std::invalid_argument("outer, size and inner must be at least 1");
}

int64_t reduce_workspace_bytes(const Axis& axis) {
    axis.check();
    return axis.inner == 1 && row_parts(axis) > 1 ? aligned_bytes<double>(axis.outer * row_parts(axis)) : 0;
}

Launch reduce(const Axis& axis, Term term, float* y, const float* x, float factor, bool accumulate,
              OrNull<void> workspace) {
    axis.check();
    const ReduceArgs args{axis, term, y, x, nullptr, factor, accumulate};
    return [=, &kernels = reduction_kernels()] {
        if (axis.inner == 1)
            reduce_rows(kernels, args, static_cast<double*>(workspace));
        else
            reduce_columns(kernels, args);
    };
}

// dx = factor * term'(x) * dy, with dy constant along the axis.  A task is a range of lines of `inner` elements.
Launch reduce_backward(const Axis& axis, Term term, float* dx, OrNull<const float> x, const float* dy, float factor,
                       bool accumulate) {
    axis.check();
    const ReduceArgs args{axis, term, dx, term == Term::plain ? nullptr : x, dy, factor, accumulate};
    return [=, &kernels = reduction_kernels()] {
        const int64_t step = std::max<int64_t>(1, kTaskElements / axis.inner);
        parallel_for_ranges(axis.outer * axis.size, step,
                            [&](int64_t begin, int64_t end) { kernels.reduce_backward(args, begin, end); });
    };
}

int64_t column_sums_workspace_bytes(int64_t rows, int64_t columns) {
    const int64_t parts = column_parts(rows, columns);
    return parts == 1 ? 0 : aligned_bytes<float>(parts * columns);
}

// The sums of the parts, then those of a block that two slices share.
int64_t column_sums_carry_bytes(int64_t each, int64_t rows, int64_t columns) {
    const int64_t parts = column_parts(rows, columns);
    return aligned_bytes<float>((parts + (longest_divided_block(each, rows, parts, kSumBlockRows) > 0)) * columns);
}

// out [columns] (+)= the sums over rows of in [rows][columns]: the bias gradient of an inner product.
Launch column_sums(int64_t rows, int64_t columns, float* out, const float* x, bool accumulate, OrNull<void> workspace,
                   int64_t first, int64_t of, void* carry, Storage storage) {
    const RowSlice slice = row_slice(rows, first, of);
    if (!slice.is_whole()) {
        if (storage != Storage::fp32)
            throw std::invalid_argument("column_sums: a slice of a batch is summed in fp32 only");
        return column_sums_of_slice(slice, columns, out, x, accumulate, carry);
    }
    const int64_t parts = column_parts(rows, columns);
    return [=, &kernels = reduction_kernels(), convert = Conversion(storage)] {
        // to (+)= the sums of rows [begin, end)
        const auto sum = [&](float* to, int64_t begin, int64_t end, bool more) {
            if (storage == Storage::fp32)
                kernels.sum_rows(to, x + begin * columns, columns, end - begin, columns, more);
            else
                sum_stored_rows(kernels, convert, columns, to, x, begin, end, more);
        };
        if (parts == 1) return sum(out, 0, rows, accumulate);
        float* sums = static_cast<float*>(workspace);
        parallel_for(parts, [&](int64_t i) {
            const int64_t begin = chunk_begin(rows, parts, i), end = chunk_begin(rows, parts, i + 1);
            sum(sums + i * columns, begin, end, false);
        });
        kernels.sum_rows(out, sums, columns, parts, columns, accumulate);
    };
}

int64_t longest_divided_block(int64_t each, int64_t rows, int64_t parts, int64_t block) {
    int64_t part = 0, longest = 0;
    for (int64_t end = each; end < rows; end += each) {
        while (chunk_begin(rows, parts, part + 1) <= end) ++part;
        const int64_t within = (end - chunk_begin(rows, parts, part)) % block;
        if (within) longest = std::max(longest, std::min(block, chunk_begin(rows, parts, part + 1) - end + within));
    }
    return longest;
}

int64_t top_k_workspace_bytes(int64_t k) { return kMaxSearchTasks * heap_bytes(k); }

// Rows are divided evenly among at most kMaxSearchTasks tasks, each with a heap of its own in the workspace.
Launch top_k(const TopK& given, void* workspace) {
    TopK args = given;
    if (!args.pitch) args.pitch = args.k * args.inner;
    if (args.rows < 1 || args.inner < 1 || args.rows % args.inner)
        throw std::invalid_argument("top_k: rows must be a multiple of inner");
    if (args.k < 1 || args.k > args.size) throw std::invalid_argument("top_k: k must be from 1 to size");
    return [=, &kernels = reduction_kernels()] {
        const int64_t tasks = std::min(kMaxSearchTasks, args.rows);
        parallel_for(tasks, [&](int64_t task) {
            auto* heap = reinterpret_cast<Candidate*>(static_cast<char*>(workspace) + task * heap_bytes(args.k));
            search_rows(kernels, args, chunk_begin(args.rows, tasks, task), chunk_begin(args.rows, tasks, task + 1),
                        heap);
        });
    };
}

LAYERMEM_KERNEL(reduce_workspace_bytes)
LAYERMEM_KERNEL(reduce)
LAYERMEM_KERNEL(reduce_backward)
LAYERMEM_KERNEL(column_sums_workspace_bytes)
LAYERMEM_KERNEL(column_sums_carry_bytes)
LAYERMEM_KERNEL(column_sums)
LAYERMEM_KERNEL(top_k_workspace_bytes)
LAYERMEM_KERNEL(top_k)

}  // namespace layermem::cpu
