// Losses against targets, pairs and labels, and their gradients.
#pragma once
#include <cstdint>

#include "cpu/isa/isa.h"
#include "cpu/microkernels/loss_args.h"

namespace layermem::cpu {

struct TargetArgs {  // SigmoidCrossEntropyLoss: elements x against targets (labels.label)
    float* out;      // dx
    const float* x;
    Labels labels;
    float scale;  // of the gradient: dloss / divisor
    bool accumulate;
};

struct PairArgs {  // EuclideanLoss, ContrastiveLoss: a and b, [items][size]
    int64_t size;
    float *da, *db;  // gradients, or null; each may be a or b
    const float *a, *b;
    const float* same;  // [items], not 0 where a and b belong together (contrastive only)
    float scale;        // of the gradient: dloss / divisor
    float margin;       // contrastive only
    bool legacy, accumulate_da, accumulate_db;
};

struct SmoothL1Args {                       // SmoothL1Loss: elements of a and b
    float *da, *db;                         // gradients, or null; each may be an input
    const float *a, *b, *inside, *outside;  // weights, or null
    float sharpness;                        // sigma^2
    float scale;                            // of the gradient: dloss / divisor
    bool accumulate_da, accumulate_db;
};

struct ItemArgs {      // HingeLoss, MultinomialLogisticLoss: x [items][classes], a label for each item
    int64_t classes;   // elements of an item
    int64_t channels;  // an item is stored [classes / channels][channels]; labels count [channels][classes / channels]
    float* out;        // dx
    const float* x;
    const float* label;
    float scale;  // of the gradient: dloss / items
    bool squared, accumulate;
};

struct LossKernels {
    void (*sigmoid_loss)(const TargetArgs&, int64_t begin, int64_t end, LossPartial&);  // elements
    void (*sigmoid_loss_backward)(const TargetArgs&, int64_t begin, int64_t end);
    void (*euclidean_loss)(const PairArgs&, int64_t begin, int64_t end, LossPartial&);  // elements
    void (*euclidean_loss_backward)(const PairArgs&, int64_t begin, int64_t end);
    void (*smooth_l1_loss)(const SmoothL1Args&, int64_t begin, int64_t end, LossPartial&);  // elements
    void (*smooth_l1_loss_backward)(const SmoothL1Args&, int64_t begin, int64_t end);
    void (*contrastive_loss)(const PairArgs&, int64_t begin, int64_t end, LossPartial&);  // items, as all below
    void (*contrastive_loss_backward)(const PairArgs&, int64_t begin, int64_t end);
    void (*hinge_loss)(const ItemArgs&, int64_t begin, int64_t end, LossPartial&);
    void (*hinge_loss_backward)(const ItemArgs&, int64_t begin, int64_t end);
    void (*logistic_loss)(const ItemArgs&, int64_t begin, int64_t end, LossPartial&);
    void (*logistic_loss_backward)(const ItemArgs&, int64_t begin, int64_t end);
};
LAYERMEM_KERNEL_TABLE(LossKernels, loss_kernels)

}  // namespace layermem::cpu
