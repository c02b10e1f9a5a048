// Rows of a table by index.  Indices are valid: kernels/gather.cpp checks them first.
#include "cpu/microkernels/gather.h"

#include "cpu/isa/simd.h"

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

void gather(const GatherArgs& args, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
        float* out = args.out + i * args.width;
        const float* row = args.table + static_cast<int64_t>(args.index[i]) * args.width;
        for_each_vector(0, args.width, [&](int64_t j, auto n) {
            const V value = load(row + j, n);
            store(out + j, args.bias ? value + load(args.bias + j, n) : value, n);
        });
    }
}

void scatter(const ScatterArgs& args, int64_t begin, int64_t end) {
    if (!args.accumulate)
        for_each_vector(begin * args.width, end * args.width,
                        [&](int64_t j, auto n) { store(args.out + j, zero(), n); });
    for (int64_t i = 0; i < args.count; ++i) {
        const int64_t row = static_cast<int64_t>(args.index[i]);
        if (row < begin || row >= end) continue;
        float* out = args.out + row * args.width;
        const float* x = args.x + i * args.width;
        for_each_vector(0, args.width,
                        [&](int64_t j, auto n) { store(out + j, load(out + j, n) + load(x + j, n), n); });
    }
}

}  // namespace

const GatherKernels gather_kernels = {gather, scatter};

}  // namespace layermem::cpu::LAYERMEM_ISA
