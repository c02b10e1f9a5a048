// LSTMUnit on rows of cells; bound by the four exponentials of a cell.  Backward computes the gates again.
#include "cpu/microkernels/recurrent.h"

#include "cpu/isa/simd.h"
#include "cpu/isa/simd_math.h"

namespace layermem::cpu::LAYERMEM_ISA {
namespace {

struct Gates {
    V i, f, o, g;
};

template <class N>
LAYERMEM_INLINE Gates gates_at(const float* gates, int64_t cells, int64_t j, N n) {
    return {sigmoid(load(gates + j, n)), sigmoid(load(gates + cells + j, n)), sigmoid(load(gates + 2 * cells + j, n)),
            tanh(load(gates + 3 * cells + j, n))};
}

void lstm_unit(const LstmUnitArgs& args, int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
        const int64_t row = item * args.cells;
        const V cont = broadcast(args.cont[item]);
        for_each_vector(0, args.cells, [&](int64_t j, auto n) __attribute__((always_inline)) {
            const Gates at = gates_at(args.gates + 4 * row, args.cells, j, n);
            const V c = cont * at.f * load(args.c + row + j, n) + at.i * at.g;
            store(args.next_c + row + j, c, n);
            store(args.h + row + j, at.o * tanh(c), n);
        });
    }
}

void lstm_unit_backward(const LstmUnitBackwardArgs& args, int64_t begin, int64_t end) {
    const V one = broadcast(1.0f);
    for (int64_t item = begin; item < end; ++item) {
        const int64_t row = item * args.cells;
        const V cont = broadcast(args.cont[item]);
        for_each_vector(0, args.cells, [&](int64_t j, auto n) __attribute__((always_inline)) {
            const Gates at = gates_at(args.gates + 4 * row, args.cells, j, n);
            const V before = load(args.c + row + j, n), dh = load(args.dh + row + j, n);
            const V kept = cont * at.f, size = tanh(kept * before + at.i * at.g);
            const V d = load(args.d_next_c + row + j, n) + dh * at.o * (one - size * size);
            if (args.dgates) {
                float* const to = args.dgates + 4 * row + j;
                const auto write = [&](int64_t part, V value) __attribute__((always_inline)) {
                    float* const at_part = to + part * args.cells;
                    store(at_part, args.accumulate_dgates ? load(at_part, n) + value : value, n);
                };
                write(0, d * at.g * at.i * (one - at.i));
                write(1, d * before * kept * (one - at.f));
                write(2, dh * size * at.o * (one - at.o));
                write(3, d * at.i * (one - at.g * at.g));
            }
            if (args.dc) {
                float* const to = args.dc + row + j;
                store(to, args.accumulate_dc ? load(to, n) + d * kept : d * kept, n);
            }
        });
    }
}

}  // namespace

const RecurrentKernels recurrent_kernels = {lstm_unit, lstm_unit_backward};

}  // namespace layermem::cpu::LAYERMEM_ISA
