// Update rules: w, h0, h1 are changed in place from the gradient dw.  Sums of squares for gradient clipping.
#pragma once
#include <cstdint>

#include "cpu/isa/isa.h"

namespace layermem::cpu {

enum class UpdateRule { SGD, Nesterov, AdaGrad, RMSProp, AdaDelta, Adam, AdamW, Accumulate };

struct Update {  // d = gain dw + decay (l1 ? sign w : w); w -= shrink w; then the rule
    UpdateRule rule;
    float* w;
    OrNull<const float> dw;  // of update alone
    OrNull<float> h0, h1;  // optimizer state; h1 is null but for AdaDelta, Adam[W], h0 for accumulate, which is w += dw
    float rate = 0;        // learning rate; of Adam and AdamW with the bias correction
    float gain = 0;        // of the gradient, before decay
    float shrink = 0;      // AdamW only: the learning rate times its decay
    float decay = 0;
    bool l1;
    float momentum = 0;   // RMSProp's rms_decay
    float momentum2 = 0;  // Adam and AdamW only
    float delta = 0;
};

struct UpdateKernels {
    void (*update)(const Update&, int64_t begin, int64_t end);  // elements
    double (*sum_of_squares)(const float* x, int64_t begin, int64_t end);
};
LAYERMEM_KERNEL_TABLE(UpdateKernels, update_kernels)

}  // namespace layermem::cpu
