// Kernels that look along one axis of [outer][size][inner]: softmax, its loss and accuracy; LRN; Interp.
#pragma once
#include <cstdint>

#include "axis.h"
#include "launch.h"
#include "losses.h"

namespace layermem::cpu {

struct SoftmaxArgs {
    Axis axis;
    float* out;       // y, dx, or null
    const float* a;   // x, or y for softmax_backward
    const float* dy;  // softmax_backward only
    Labels labels;
    float scale;  // of the loss gradient
    bool accumulate;
    int64_t top_k;   // accuracy only
    uint8_t* found;  // likewise: for each position whether its label is among the top_k; or null
};

struct LrnArgs {
    int64_t n, h, w, c, size;
    float share, shift, beta;
    float* out;
    const float *x, *dy;
    bool accumulate;
};

struct InterpArgs {
    int64_t n, c, h, w, ho, wo;
    int64_t first_h, size_h, first_w, size_w;  // the part of x that is sampled
    float* out;
    const float* in;
    bool accumulate;
};

Launch softmax_forward(const Axis&, float* y, const float* x);
Launch softmax_backward(const Axis&, float* dx, const float* y, const float* dy, bool accumulate);

int64_t softmax_loss_workspace(const Axis&);
Launch softmax_loss_forward(const Axis&, float* loss, float* y, const float* x, const Labels&, void* scratch);
Launch softmax_loss_backward(const Axis&, float* dx, const float* x, const float* dloss, const Labels&, bool accumulate,
                             void* scratch);

// The share of labels among the top_k scores; and, where by_class is not null, that share for each class.
int64_t accuracy_workspace(const Axis&, bool by_class);
Launch accuracy(const Axis&, float* share, float* by_class, const float* x, const Labels&, int64_t top_k,
                void* scratch);

int64_t lrn_workspace(int64_t n, int64_t h, int64_t w, int64_t c, int64_t size, bool across, bool backward);
Launch lrn_forward(const LrnArgs&, bool across, void* scratch);
Launch lrn_backward(const LrnArgs&, bool across, void* scratch);

Launch interp_forward(const InterpArgs&);
Launch interp_backward(const InterpArgs&);

}  // namespace layermem::cpu
