// The element-wise maximum of several arrays, one array at a time.
#include "cpu/microkernels/eltwise.h"

#include "cpu/isa/simd_math.h"

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

// out = max(out, in), starting with the first input; `>` keeps the earlier one, so of equal inputs the last wins.
void max_forward(const ArgMaxSelect& args, int64_t begin, int64_t end) {
    for_each_vector(begin, end, [&](int64_t i, auto n) {
        const V x = load(args.in + i, n);
        if (args.index == 0) {
            store(args.out + i, x, n);
            if (args.argmax) store_bytes(args.argmax + i, I{}, n);
            return;
        }
        const V best = load(args.out + i, n);
        const I keeps = best > x;
        store(args.out + i, select(keeps, best, x), n);
        if (args.argmax)
            store_bytes(args.argmax + i, (~keeps & args.index) | (keeps & load_bytes(args.argmax + i, n)), n);
    });
}

// dx (+)= dy where this input had the maximum, 0 elsewhere
void max_backward(const ArgMaxSelect& args, int64_t begin, int64_t end) {
    for_each_vector(begin, end, [&](int64_t i, auto n) {
        V dx = select(load_bytes(args.argmax + i, n) == args.index, load(args.in + i, n), zero());
        if (args.accumulate) dx += load(args.out + i, n);
        store(args.out + i, dx, n);
    });
}

}  // namespace

const EltwiseKernels eltwise_kernels = {max_forward, max_backward};

}  // namespace layermem::cpu::LAYERMEM_ISA
