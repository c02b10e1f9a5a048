// Softmax along one axis, its loss against labels, and the accuracy of scores.
#pragma once
#include <cstdint>

#include "cpu/isa/isa.h"
#include "cpu/microkernels/axis.h"
#include "cpu/microkernels/loss_args.h"

namespace layermem::cpu {

struct SoftmaxArgs {
    Axis axis;        // size: the classes
    float* out;       // y, dx, or null (loss without its softmax, accuracy)
    const float* a;   // x;  softmax_backward: y
    const float* dy;  // softmax_backward only
    Labels labels;    // label [outer][inner]
    float scale;      // of the loss gradient: dloss / divisor
    bool accumulate;
    int64_t top_k;     // accuracy only
    uint8_t* correct;  // accuracy only: for each position whether its label is among the top_k; or null
};

struct SoftmaxKernels {  // each on [begin, end) of outer
    void (*softmax)(const SoftmaxArgs&, int64_t begin, int64_t end);
    void (*softmax_backward)(const SoftmaxArgs&, int64_t begin, int64_t end);
    void (*softmax_loss)(const SoftmaxArgs&, int64_t begin, int64_t end, LossPartial&);
    void (*softmax_loss_backward)(const SoftmaxArgs&, int64_t begin, int64_t end);
    void (*accuracy)(const SoftmaxArgs&, int64_t begin, int64_t end, LossPartial&);
};
LAYERMEM_KERNEL_TABLE(SoftmaxKernels, softmax_kernels)

}  // namespace layermem::cpu
