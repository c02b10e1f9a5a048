// One step of an LSTM after its inner products.
//
//   i, f, o = sigmoid, g = tanh of the four parts of an item's gates
//   c' = cont f c + i g        h = o tanh(c')
#pragma once
#include <cstdint>

#include "cpu/isa/isa.h"

namespace layermem::cpu {

struct LstmUnitArgs {
    int64_t cells;
    const float *c, *gates, *cont;  // [items][cells], [items][4 cells], [items]
    float *next_c, *h;              // forward; next_c over c
};

struct LstmUnitBackwardArgs {
    int64_t cells;
    const float *c, *gates, *cont;
    const float *d_next_c, *dh;
    OrNull<float> dc, dgates;  // null for a gradient that is not wanted; dc over c, d_next_c or dh, dgates over gates
    bool accumulate_dc, accumulate_dgates;
};

struct RecurrentKernels {  // of items [begin, end)
    void (*lstm_unit)(const LstmUnitArgs&, int64_t begin, int64_t end);
    void (*lstm_unit_backward)(const LstmUnitBackwardArgs&, int64_t begin, int64_t end);
};
LAYERMEM_KERNEL_TABLE(RecurrentKernels, recurrent_kernels)

}  // namespace layermem::cpu
