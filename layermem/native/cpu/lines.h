// Kernels that look along one axis of [outer][size][inner]: softmax and its loss; LRN; and moves of memory.
#pragma once
#include <cstdint>
#include <vector>

#include "launch.h"

namespace layermem::cpu {

struct Axis {
    int64_t outer, size, inner;
    int64_t positions() const { return outer * inner; }
    void check() const;
};

struct Judged {  // what a stretch of positions adds to a loss
    double loss;
    int64_t valid;
    int64_t wrong;  // positions whose label is no class
    int64_t example;  // one such label
};

struct SoftmaxArgs {
    Axis axis;
    float* out;       // y, dx, or null
    const float* a;   // x, or y for softmax_backward
    const float* dy;  // softmax_backward only
    const float* label;
    bool ignores;
    int64_t ignore_label;
    float scale;  // of the loss gradient
    bool accumulate;
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

struct Labels {
    const float* label;  // [outer][inner]
    bool ignores;
    int64_t ignore_label;
    double divisor;  // of the sum; 0: the labels that are not ignored, at least 1
};
int64_t softmax_loss_workspace(const Axis&);
Launch softmax_loss_forward(const Axis&, float* loss, float* y, const float* x, const Labels&, void* scratch);
Launch softmax_loss_backward(const Axis&, float* dx, const float* x, const float* dloss, const Labels&, bool accumulate,
                             void* scratch);

// sum max(x, 0) - x t + log(1 + exp(-|x|)); a target whose whole part is ignore_label does not count
int64_t sigmoid_loss_workspace(int64_t count);
Launch sigmoid_loss_forward(int64_t count, float* loss, const float* x, const Labels&, void* scratch);
Launch sigmoid_loss_backward(int64_t count, float* dx, const float* x, const float* dloss, const Labels&, bool accumulate,
                             void* scratch);

int64_t euclidean_loss_workspace(int64_t count);
Launch euclidean_loss_forward(int64_t count, float* loss, const float* a, const float* b, double divisor, void* scratch);
Launch euclidean_loss_backward(int64_t count, float* dx, const float* a, const float* b, const float* dloss,
                               double divisor, bool accumulate);

int64_t lrn_workspace(int64_t n, int64_t h, int64_t w, int64_t c, int64_t size, bool across, bool backward);
Launch lrn_forward(const LrnArgs&, bool across, void* scratch);
Launch lrn_backward(const LrnArgs&, bool across, void* scratch);

Launch interp_forward(const InterpArgs&);
Launch interp_backward(const InterpArgs&);

}  // namespace layermem::cpu
