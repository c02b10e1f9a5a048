// InfogainLoss on the softmax p of its scores, [outer][classes][inner]: what each class counts depends on the label.
#pragma once
#include <cstdint>

#include "cpu/isa/isa.h"
#include "cpu/microkernels/axis.h"
#include "cpu/microkernels/loss_args.h"

namespace layermem::cpu {

struct InfogainArgs {
    Axis axis;            // of the classes
    const float* p;       // softmax
    const float* matrix;  // [classes][classes]: what each class counts where the label is the row's
    Labels labels;        // [outer][inner]
};

struct InfogainGradient {
    float* dx;
    const float* row_sums;  // of the matrix
    float scale;            // dloss / divisor
    bool accumulate;
};

struct InfogainKernels {  // each on positions [begin, end) of outer x inner
    void (*forward)(const InfogainArgs&, int64_t begin, int64_t end, LossPartial&);
    void (*backward)(const InfogainArgs&, const InfogainGradient&, int64_t begin, int64_t end);
};
LAYERMEM_KERNEL_TABLE(InfogainKernels, infogain_kernels)

}  // namespace layermem::cpu
