// LSTMUnit: one step of an LSTM after its inner products.
//   c, next_c, h, dc, d_next_c, dh  [items,cells] float    gates, dgates  [items,4 cells] float: i, f, o, g
//   cont  [items] float: 0 where a sequence begins, else 1
//   next_c, h (forward), dc, dgates (backward) written, dc and dgates maybe added to and either may be null; others read
//   launch   lstm_unit_forward, lstm_unit_backward: one thread per cell: grid ceil(items cells / 256), block 256, no shared memory
//   traffic  forward 28 bytes a cell, backward 48: bound by memory, and small: a step of 20 x 650 cells is 0.6 MB
//   assumes  4 items cells < 2^31
//   overlay  a thread reads all that it needs before it writes: next_c over c; dc over c, d_next_c or dh; dgates over
//            gates
//   source   layermem/backends/reference/recurrent.py; Caffe lstm_unit_layer.cu
#include "common.cuh"

using namespace lm;

constexpr int THREADS = 256;

struct LstmUnitArgs {
    float *next_c, *h;
    const float *c, *gates, *cont;
    Divider by_cells;
    int count;
};

struct LstmUnitBackwardArgs {
    float *dc, *dgates;
    const float *c, *gates, *cont, *d_next_c, *dh;
    Divider by_cells;
    int count, accumulate_dc, accumulate_dgates;
};

LM_FN float sigmoid(float x) { return 0.5f * tanhf(0.5f * x) + 0.5f; }  // never overflows

struct Gates {
    float i, f, o, g;
};

LM_FN Gates gates_at(const float* gates, unsigned cells) {
    return {sigmoid(gates[0]), sigmoid(gates[cells]), sigmoid(gates[2 * cells]), tanhf(gates[3 * cells])};
}

LM_KERNEL(lstm_unit_forward, LstmUnitArgs, p, THREADS) {
    const unsigned at = blockIdx.x * THREADS + threadIdx.x, cells = p.by_cells.divisor;
    if (at >= static_cast<unsigned>(p.count)) return;
    const unsigned item = divide(at, p.by_cells);
    const Gates gate = gates_at(p.gates + at + 3 * item * cells, cells);
    const float c = p.cont[item] * gate.f * p.c[at] + gate.i * gate.g;
    p.next_c[at] = c;
    p.h[at] = gate.o * tanhf(c);
}

LM_KERNEL(lstm_unit_backward, LstmUnitBackwardArgs, p, THREADS) {
    const unsigned at = blockIdx.x * THREADS + threadIdx.x, cells = p.by_cells.divisor;
    if (at >= static_cast<unsigned>(p.count)) return;
    const unsigned item = divide(at, p.by_cells), gates = at + 3 * item * cells;
    const Gates gate = gates_at(p.gates + gates, cells);
    const float before = p.c[at], dh = p.dh[at], kept = p.cont[item] * gate.f;
    const float size = tanhf(kept * before + gate.i * gate.g);
    const float d = p.d_next_c[at] + dh * gate.o * (1.0f - size * size);
    if (p.dgates) {
        float* const to = p.dgates + gates;
        const bool add = p.accumulate_dgates;
        put(to, d * gate.g * gate.i * (1.0f - gate.i), add);
        put(to + cells, d * before * kept * (1.0f - gate.f), add);
        put(to + 2 * cells, dh * size * gate.o * (1.0f - gate.o), add);
        put(to + 3 * cells, d * gate.i * (1.0f - gate.g * gate.g), add);
    }
    if (p.dc) put(p.dc + at, d * kept, p.accumulate_dc);
}
