// Ops that meet statistics or factors of a channel: x is [outer][channels][inner].  Channels-last images have
// inner = 1 and outer = N * H * W; other layouts and axes are the same with other numbers.
#pragma once
#include <cstdint>

#include "launch.h"

namespace layermem::cpu {

struct Channels {
    int64_t outer, channels, inner;
    int64_t count() const { return outer * channels * inner; }
    int64_t lines() const { return inner == 1 ? outer : outer * channels; }  // what a task walks along
    int64_t line() const { return inner == 1 ? channels : inner; }           // elements of each
    void check() const;
};

enum class Blend {
    affine,     // out = a * f [+ g]          Scale;  its data gradient without g
    shift,      // out = a + g                Bias
    normalize,  // out = (a - f) * g          BatchNorm: mean, inverse deviation
    fused,      // out = (a - f) * h + g [, rectified]      BatchNorm + Scale [+ ReLU]: mean, slope, bias
    fused_dx,   // out = h * (a' - f - (b - g) * k), a' = a where (b - g) * h + e > 0, or everywhere without relu
    gradient,   // out = h * (a - f - (b - g) * k)  BatchNorm backward, a = dy, b = x, f = mean dy, g = mean, h, k
    prelu,      // out = a > 0 ? a : f a
    prelu_dx,   // out = b > 0 ? a : f a
};

struct BlendArgs {
    Channels shape;
    Blend blend;
    float* out;
    const float *a, *b;
    const float *f, *g, *h, *k, *e;  // [channels] each
    bool relu, accumulate;
};

enum class Sum {
    moments,     // out: mean, sum of squared differences from it (two numbers a channel)
    plain,       // out: sum a
    product,     // out: sum a b, sum a
    normalized,  // out: sum a (b - f) g, sum a       a = dy, b = x, f = mean, g = inverse deviation
    fused,       // out: sum a' (b - f) g, sum a'     a' = a where (b - f) * h + e > 0, or everywhere without relu
    prelu,       // out: sum a min(b, 0)
};

struct SumArgs {
    Channels shape;
    Sum sum;
    const float *a, *b, *f, *g, *h, *e;
    bool relu;
    float* out;  // [2][channels] of one part, or [1][channels]
};

constexpr int64_t PARTS = 32;  // most parts a channel sum is cut into; fewer where there is little to add
int64_t parts_of(const Channels&);

Launch scale_forward(const Channels&, float* y, const float* x, const float* factor, const float* bias);
Launch bias_forward(const Channels&, float* y, const float* x, const float* bias);
int64_t scale_backward_workspace(const Channels&);
// null for a gradient that nobody wants; x is read for dfactor only, factor for dx only
struct ScaleBackward {
    float *dx, *dfactor, *dbias;
    const float *x, *dy, *factor;
    bool accumulate_dx, accumulate_dfactor, accumulate_dbias;
};
Launch scale_backward(const Channels&, const ScaleBackward&, void* scratch);

int64_t batch_norm_forward_workspace(const Channels&);
struct Averages {  // BatchNorm's three blobs; null where they must not move
    float *mean, *variance, *factor;
    float fraction;
};
Launch batch_norm_forward(const Channels&, float* y, const float* x, float* mean, float* inv_std, const Averages&,
                          float eps, void* scratch);
Launch batch_norm_replay(const Channels&, float* y, const float* x, const float* mean, const float* inv_std);
int64_t batch_norm_global_workspace(const Channels&);
Launch batch_norm_global_forward(const Channels&, float* y, const float* x, const Averages&, float eps, void* scratch);
Launch batch_norm_global_backward(const Channels&, float* dx, const float* dy, const Averages&, float eps,
                                  bool accumulate, void* scratch);
int64_t batch_norm_backward_workspace(const Channels&);
Launch batch_norm_backward(const Channels&, float* dx, const float* x, const float* dy, const float* mean,
                           const float* inv_std, bool accumulate, void* scratch);

// BatchNorm, Scale and (relu) ReLU as one op that keeps x only: y = relu((x - mean) inv_std factor + bias).  A replay
// reads mean and inv_std; backward finds from x, by the same arithmetic, where y was positive.
struct FusedNorm {
    Channels shape;
    const float *x, *factor, *bias;
    float *mean, *inv_std;
    bool relu;
};
int64_t batch_norm_fused_workspace(const Channels&);
Launch batch_norm_fused_forward(const FusedNorm&, float* y, const Averages&, float eps, bool replay, void* scratch);
Launch batch_norm_fused_global_forward(const FusedNorm&, float* y, const Averages&, float eps, void* scratch);
struct FusedGradients {
    float *dx, *dfactor, *dbias;
    bool accumulate_dx, accumulate_dfactor, accumulate_dbias;
};
Launch batch_norm_fused_backward(const FusedNorm&, const FusedGradients&, const float* dy, void* scratch);

// slope has one number, or one a channel
Launch prelu_forward(const Channels&, float* y, const float* x, const float* slope);
int64_t prelu_backward_workspace(const Channels&);
Launch prelu_backward(const Channels&, float* dx, float* dslope, const float* x, const float* dy, const float* slope,
                      bool accumulate_dx, bool accumulate_dslope, void* scratch);

}  // namespace layermem::cpu
