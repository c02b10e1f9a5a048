// LSTMUnit: one step of an LSTM after its inner products; formulas are in microkernels/recurrent.h.
#pragma once
#include "cpu/kernels/launch.h"
#include "cpu/microkernels/recurrent.h"

namespace layermem::cpu {

Launch lstm_unit_forward(int64_t items, const LstmUnitArgs& args);
Launch lstm_unit_backward(int64_t items, const LstmUnitBackwardArgs& args);

}  // namespace layermem::cpu
