// Element by element: what an inner loop needs to know.  (inner/map.h computes, activation.cpp and others drive.)
#pragma once
#include <cstdint>

namespace layermem::cpu {

enum class Op {
    // out = f(a), with constants p q r
    fill,         // p
    scale,        // p a
    sigmoid,      // 1 / (1 + exp(-a))
    tanh,         //
    elu,          // a > 0 ? a : p (exp(a) - 1)
    absolute,     // |a|
    exponential,  // q exp(p a)
    logarithm,    // r log(p a + q)
    power,        // (q a + r)^p
    softplus,     // log(1 + exp(a)): Caffe's BNLL
    clip,         // a between p and q
    swish,        // a / (1 + exp(-p a))
    threshold,    // a > p
    // out = f(a, b)
    add,       // p a + q b
    multiply,  // a b
    // out = dy f', with a = dy and b = what forward's slope is found from
    relu_slope,         // b > 0 ? 1 : p            b: x or y
    sigmoid_slope,      // b (1 - b)                b: y
    tanh_slope,         // 1 - b^2                  b: y
    elu_slope,          // b > 0 ? 1 : p exp(b)     b: x
    absolute_slope,     // sign b                   b: x
    exponential_slope,  // p b                      b: y
    logarithm_slope,    // r p / (p b + q)          b: x
    power_slope,        // p q (q b + r)^(p-1)      b: x
    softplus_slope,     // 1 / (1 + exp(-b))        b: x
    clip_slope,         // p <= b <= q              b: x
    swish_slope,        // s + p b s (1 - s), s = 1 / (1 + exp(-p b))   b: x
};

struct Map {
    Op op;
    float* out;
    const float* a;
    const float* b;
    float p, q, r;
    bool accumulate;
};

struct Relu {
    float* out;  // forward: null where only the mask is wanted
    const float* in;
    uint8_t* mask;  // forward: written where not null;  backward: read
    float slope;
    bool accumulate;
};

struct Clip {
    float* out;
    const float* in;
    uint8_t* mask;
    float lowest, highest;
};

struct Choice {  // eltwise MAX: the last of equal inputs wins
    float* out;
    const float* in;
    uint8_t* winner;
    int32_t index;  // of `in`; 0 starts afresh
    bool accumulate;
};

struct Dropout {
    float* out;
    const float* in;
    uint32_t key[2];
    uint64_t step;
    uint32_t bound;  // dropped below it
    float gain;      // of what is kept
    bool accumulate;
};

enum class Rule { sgd, nesterov, adagrad, rmsprop, adadelta, adam };

struct Update {
    Rule rule;
    float* w;
    const float* dw;
    float *h0, *h1;
    float rate, gain;  // of the gradient, before decay
    float decay;
    bool l1;
    float momentum, momentum2, delta;
};

}  // namespace layermem::cpu
