// Dropout with a counter-based generator: the word of an element depends on seed, stream, step and index only, so that
// backward, and a recomputed forward, drop the same elements without a stored mask.
#include "cpu/microkernels/dropout.h"

#include "cpu/isa/simd_math.h"
#include "cpu/microkernels/philox.h"

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

// Element number i belongs to word i % 4 of counter i / 4; begin is a multiple of 64, so that every step has whole
// counters, unless the first element has not the first word of its own.
void dropout(const Dropout& args, int64_t begin, int64_t end) {
    const V gain = broadcast(args.gain);
    const int64_t skipped = args.first % 4;
    typedef uint32_t U __attribute__((vector_size(4 * kLanes)));
    for (int64_t base = begin; base < end; base += 2 * kLanes) {
        uint32_t words[4 * kLanes];
        const auto counter = static_cast<uint64_t>((args.first + base) / 4);
        philox(words, counter, args.step, args.key);
        if (skipped) philox(words + 2 * kLanes, counter + kCounters, args.step, args.key);
        for (int half = 0; half < 2; ++half) {
            const int64_t i = base + half * kLanes, left = end - i;
            if (left <= 0) break;
            U word;
            __builtin_memcpy(&word, words + skipped + half * kLanes, sizeof word);
            const I dropped = word < (args.bound - U{});
            V v = select(dropped, zero(), gain * load_up_to(args.in + i, left));
            if (args.accumulate) v += load_up_to(args.out + i, left);
            store_up_to(args.out + i, v, left);
        }
    }
}

}  // namespace

const DropoutKernels dropout_kernels = {dropout};

}  // namespace layermem::cpu::LAYERMEM_ISA
