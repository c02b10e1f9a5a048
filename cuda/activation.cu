// Activations: y = f(x) and dx = dy f', the derivative from whichever of x and y the layer reads.
//   y, dx [count] written (dx maybe added to)     x, dy, source [count] read     mask a bit per element
//   float, or 16 bits (element.cuh) in kernels whose names end in the type's
//   launch   *_forward, *_backward: pointwise.cuh with 2 groups, grid ceil(count / 2048), block 256
//            *_forward_mask, mask_backward: eight elements a thread, grid ceil(count / 2048), block 256
//   traffic  8 bytes per element and input beyond the first 4, half of it in 16 bits: bound by memory
//   assumes  count below 2^31
//   source   Caffe relu_layer.cu and its neighbours; formulas as in layermem/backends/reference/activation.py
#include "pointwise.cuh"

using namespace lm;

template <class T>
struct ForwardArgs {
    T* y;
    const T* x;
    unsigned char* mask;  // or null
    int count;
    float alpha, beta, gamma;  // of the function (layermem/ops/activation.py)
    float largest_zero;        // of the mask of a ReLU (pointwise.cuh)
};

template <class T>
struct BackwardArgs {
    T* dx;
    const T* dy;
    const T* source;  // x or y
    const unsigned char* mask;
    int count, accumulate;
    float alpha, beta, gamma;
};

#define LM_FORWARD(name, expression)                                                               \
    template <class T>                                                                             \
    LM_FN void name##_forward_of(const ForwardArgs<T>& p) {                                        \
        pointwise<1, 2>(p.y, {p.x}, p.count, false, [&](const float (&in)[1], unsigned) -> float { \
            const float x = in[0];                                                                 \
            return expression;                                                                     \
        });                                                                                        \
    }                                                                                              \
    LM_KERNEL_OF_ELEMENTS(name##_forward, ForwardArgs, POINTWISE_THREADS, name##_forward_of)

#define LM_BACKWARD(name, from, expression)                                                                           \
    template <class T>                                                                                                \
    LM_FN void name##_backward_of(const BackwardArgs<T>& p) {                                                         \
        pointwise<2, 2>(p.dx, {p.dy, p.source}, p.count, p.accumulate, [&](const float (&in)[2], unsigned) -> float { \
            const float dy = in[0], from = in[1];                                                                     \
            return expression;                                                                                        \
        });                                                                                                           \
    }                                                                                                                 \
    LM_KERNEL_OF_ELEMENTS(name##_backward, BackwardArgs, POINTWISE_THREADS, name##_backward_of)

// One activation: y from x, and dx from dy and x or y, whichever `from` names.
#define LM_ACTIVATION(name, forward, from, backward) LM_FORWARD(name, forward) LM_BACKWARD(name, from, backward)

LM_FN float sigmoid(float x) { return 0.5f * tanhf(0.5f * x) + 0.5f; }  // never overflows

// x^power, of a negative x too where the power is whole
LM_FN float power_of(float x, float power) { return power == 2.0f ? x * x : power == 1.0f ? x : powf(x, power); }

LM_FN float sign(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x; }

LM_FN float relu(float x, float slope) {
    return x > 0.0f ? x : slope != 0.0f ? slope * x : x == x ? 0.0f : x;  // a NaN stays one
}

LM_FN float clip(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

LM_FN float swish_slope(float x, float beta) {
    const float s = sigmoid(beta * x);
    return s + beta * x * s * (1.0f - s);
}

LM_ACTIVATION(relu, relu(x, p.alpha), x, x > 0.0f ? dy : p.alpha != 0.0f ? p.alpha * dy : 0.0f)
LM_ACTIVATION(clip, clip(x, p.alpha, p.beta), x, x >= p.alpha && x <= p.beta ? dy : 0.0f)
LM_ACTIVATION(elu, x > 0.0f ? x : p.alpha * expm1f(x), x, x > 0.0f ? dy : dy * (p.alpha * expf(x)))
LM_ACTIVATION(sigmoid, sigmoid(x), y, dy*(y * (1.0f - y)))
LM_ACTIVATION(tanh, tanhf(x), y, dy * (1.0f - y * y))
LM_ACTIVATION(absval, fabsf(x), x, dy* sign(x))
LM_ACTIVATION(power, power_of(p.gamma + p.beta * x, p.alpha), x,
              dy*(p.alpha* p.beta* power_of(p.gamma + p.beta * x, p.alpha - 1.0f)))
LM_ACTIVATION(exp, p.beta* expf(p.alpha* x), y, dy*(p.alpha* y))
LM_ACTIVATION(log, p.gamma* logf(p.beta + p.alpha * x), x, dy*(p.gamma* p.alpha / (p.beta + p.alpha * x)))
LM_ACTIVATION(bnll, fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))), x, dy* sigmoid(x))
LM_ACTIVATION(swish, x* sigmoid(p.alpha* x), x, dy* swish_slope(x, p.alpha))
LM_FORWARD(threshold, x > p.alpha ? 1.0f : 0.0f)

// scaled_backward: dx = a dy, for functions that are linear in x.
//   dx [count] written or added to     dy [count] read     launch   pointwise.cuh with 4 groups, grid
//   ceil(count / 4096), block 256
template <class T>
LM_FN void scaled_backward_of(const BackwardArgs<T>& p) {
    pointwise<1, 4>(p.dx, {p.dy}, p.count, p.accumulate,
                    [&](const float (&in)[1], unsigned) { return p.alpha * in[0]; });
}
LM_KERNEL_OF_ELEMENTS(scaled_backward, BackwardArgs, POINTWISE_THREADS, scaled_backward_of)

// ---- with one bit per element ---------------------------------------------------------------------------------------

template <class T, class F, class Bit>
LM_FN void forward_with_mask(const ForwardArgs<T>& p, F f, Bit bit) {
    const unsigned at = first_of_eight(), count = static_cast<unsigned>(p.count);
    if (at >= count) return;
    float values[8];
    load_eight(values, p.x, at, count);
    unsigned bits = 0;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
        if (at + e < count && bit(values[e])) bits |= 1u << e;
        values[e] = f(values[e]);
    }
    p.mask[at / 8] = static_cast<unsigned char>(bits);
    put_eight(p.y, values, at, count, false);
}

template <class T>
LM_FN void relu_with_mask(const ForwardArgs<T>& p) {
    forward_with_mask(p, [&](float x) { return relu(x, p.alpha); }, [&](float x) { return x > p.largest_zero; });
}
LM_KERNEL_OF_ELEMENTS(relu_forward_mask, ForwardArgs, POINTWISE_THREADS, relu_with_mask)

template <class T>
LM_FN void clip_with_mask(const ForwardArgs<T>& p) {
    forward_with_mask(
        p, [&](float x) { return clip(x, p.alpha, p.beta); }, [&](float x) { return x >= p.alpha && x <= p.beta; });
}
LM_KERNEL_OF_ELEMENTS(clip_forward_mask, ForwardArgs, POINTWISE_THREADS, clip_with_mask)

// mask_backward: dx = dy where the bit is set, else a dy
template <class T>
LM_FN void mask_backward_of(const BackwardArgs<T>& p) {
    const unsigned at = first_of_eight(), count = static_cast<unsigned>(p.count);
    if (at >= count) return;
    float values[8];
    load_eight(values, p.dy, at, count);
    const unsigned bits = p.mask[at / 8];
#pragma unroll
    for (int e = 0; e < 8; ++e) values[e] = bits >> e & 1u ? values[e] : p.alpha != 0.0f ? p.alpha * values[e] : 0.0f;
    put_eight(p.dx, values, at, count, p.accumulate);
}
LM_KERNEL_OF_ELEMENTS(mask_backward, BackwardArgs, POINTWISE_THREADS, mask_backward_of)

// ---- with a learned slope -------------------------------------------------------------------------------------------

// PReLU: element i belongs to channel (i / inner) % channels; one slope for all where channels is 1.
struct PreluArgs {
    float* out;           // y, or dx
    const float* source;  // x, or dy
    const float* x;
    const float* slopes;
    Divider by_inner, by_channels;
    int count, accumulate;
};

LM_FN float slope_at(const PreluArgs& p, unsigned i) {
    const unsigned block = divide(i, p.by_inner);
    return p.slopes[block - divide(block, p.by_channels) * p.by_channels.divisor];
}

// prelu: out = in where x > 0, else slope in: forward with in = x, backward with in = dy.
//   out [count] float written or added to     in, x [count], slopes [channels] float read
//   launch   pointwise.cuh with 2 groups, grid ceil(count / 2048), block 256
LM_KERNEL(prelu, PreluArgs, p, POINTWISE_THREADS) {
    pointwise<2, 2>(p.out, {p.source, p.x}, p.count, p.accumulate, [&](const float (&in)[2], unsigned i) {
        return in[1] > 0.0f ? in[0] : slope_at(p, i < static_cast<unsigned>(p.count) ? i : 0) * in[0];
    });
}
