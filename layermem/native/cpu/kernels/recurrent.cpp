// A task is a range of items.
//
//     traffic  forward: 5 floats a cell read, 2 written; backward: 7 read, 5 written
#include "cpu/kernels/recurrent.h"

#include <algorithm>
#include <stdexcept>

#include "cpu/kernels/registry.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

constexpr int64_t kTaskCells = 2048;  // each takes four exponentials

template <class Kernel, class Args>
Launch over_items(const Kernel& kernel, int64_t items, const Args& args) {
    if (items < 0 || args.cells < 1) throw std::invalid_argument("lstm_unit: needs at least one cell");
    return [=] {
        parallel_for_ranges(items, std::max<int64_t>(1, kTaskCells / args.cells),
                            [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
    };
}

}  // namespace

Launch lstm_unit_forward(int64_t items, const LstmUnitArgs& args) {
    return over_items(recurrent_kernels().lstm_unit, items, args);
}

Launch lstm_unit_backward(int64_t items, const LstmUnitBackwardArgs& args) {
    return over_items(recurrent_kernels().lstm_unit_backward, items, args);
}

LAYERMEM_KERNEL(lstm_unit_forward)
LAYERMEM_KERNEL(lstm_unit_backward)

}  // namespace layermem::cpu
