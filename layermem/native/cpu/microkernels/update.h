// Update rules: w, h0, h1 are changed in place from the gradient dw.  Sums of squares for gradient clipping.
#pragma once
#include <cstdint>

#include "cpu/isa/isa.h"

namespace layermem::cpu {

enum class UpdateRule { sgd, nesterov, adagrad, rmsprop, adadelta, adam, accumulate };

struct Update {  // d = gain dw + decay (l1 ? sign w : w), then the rule
    UpdateRule rule;
    float* w;
    const float* dw;
    float *h0, *h1;  // optimizer state; h1 is null but for AdaDelta and Adam, h0 for accumulate, which is w += dw
    float rate;      // learning rate; of Adam with the bias correction
    float gain;      // of the gradient, before decay
    float decay;
    bool l1;
    float momentum;   // RMSProp's rms_decay
    float momentum2;  // Adam only
    float delta;
};

struct UpdateKernels {
    void (*update)(const Update&, int64_t begin, int64_t end);  // elements
    double (*sum_of_squares)(const float* x, int64_t begin, int64_t end);
};
LAYERMEM_KERNEL_TABLE(UpdateKernels, update_kernels)

}  // namespace layermem::cpu
