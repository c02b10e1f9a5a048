// A task of gather_rows is a range of chosen rows, one of scatter_rows a range of the table: it looks for its rows among
// all indices, so that each row is summed by one task in the order of the indices.
#include "cpu/kernels/gather.h"

#include <stdexcept>
#include <string>

#include "cpu/kernels/loss_partials.h"
#include "cpu/kernels/registry.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

constexpr int64_t kGatherTaskFloats = 16384;
constexpr int64_t kScatterTasks = 64;  // at most: each reads all indices

void check(int64_t rows, int64_t width, int64_t count) {
    if (rows < 1 || width < 1 || count < 0)
        throw std::invalid_argument("gather: a table needs rows and columns, and no count may be negative");
}

void check_indices(const float* index, int64_t count, int64_t rows) {
    for (int64_t i = 0; i < count; ++i) {
        const int64_t row = label_class(index[i]);
        if (row < 0 || row >= rows)
            throw std::invalid_argument("reads index " + label_text(index[i]) + ", but it has " + std::to_string(rows) +
                                        " rows: 0 to " + std::to_string(rows - 1));
    }
}

}  // namespace

Launch gather_rows(const GatherArgs& args) {
    check(args.rows, args.width, args.count);
    return [=, &kernels = gather_kernels()] {
        check_indices(args.index, args.count, args.rows);
        parallel_for_ranges(args.count, std::max<int64_t>(1, kGatherTaskFloats / args.width),
                            [&](int64_t begin, int64_t end) { kernels.gather(args, begin, end); });
    };
}

Launch scatter_rows(const ScatterArgs& args) {
    check(args.rows, args.width, args.count);
    return [=, &kernels = gather_kernels()] {
        check_indices(args.index, args.count, args.rows);
        const int64_t step = std::max(ceil_div(args.rows, kScatterTasks), kGatherTaskFloats / args.width);
        parallel_for_ranges(args.rows, std::max<int64_t>(1, step),
                            [&](int64_t begin, int64_t end) { kernels.scatter(args, begin, end); });
    };
}

LAYERMEM_KERNEL(gather_rows)
LAYERMEM_KERNEL(scatter_rows)

}  // namespace layermem::cpu
