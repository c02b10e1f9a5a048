// The pointwise functions: the one table that names, documents and computes them.
//
//   FUNCTION(name, formula, value)   value: from a and b, the inputs
//   LAYERMEM_ACTIVATION(FUNCTION, name, formula, value, derivative_formula, derivative)
//                                    name, and name_backward with a = dy, b = x or y
//
// Names are those that the kernel `pointwise` takes, formulas document them.  The values are expressions of
// microkernels/activation.cpp: vectors a, b, alpha, beta, gamma and one, and args for scalars.  A new activation is one
// entry here.
#pragma once

namespace layermem::cpu {

// clang-format off
#define LAYERMEM_POINTWISE_KINDS(FUNCTION)                                                                        \
    FUNCTION(fill, "alpha", alpha)                                                                                \
    FUNCTION(scale, "alpha a", alpha * a)                                                                         \
    FUNCTION(add, "alpha a + beta b", alpha * a + beta * b)                                                       \
    FUNCTION(multiply, "a b", a * b)                                                                              \
    FUNCTION(threshold, "a > alpha ? 1 : 0", select(a > alpha, one, zero()))                                      \
    FUNCTION(relu_backward, "a (b > 0 ? 1 : alpha), b = x or y",                                                  \
        select(b > zero(), a, args.alpha == 0 ? zero() : alpha * a))                                              \
    LAYERMEM_ACTIVATION(FUNCTION, clip, "min(max(a, alpha), beta)", min(max(a, alpha), beta),                     \
        "alpha <= b <= beta ? a : 0, b = x", select((b >= alpha) & (b <= beta), a, zero()))                       \
    LAYERMEM_ACTIVATION(FUNCTION, elu, "a > 0 ? a : alpha (exp(a) - 1)", select(a > zero(), a, alpha * expm1(a)), \
        "a (b > 0 ? 1 : alpha exp(b)), b = x", select(b > zero(), a, a * alpha * exp(b)))                         \
    LAYERMEM_ACTIVATION(FUNCTION, sigmoid, "1 / (1 + exp(-a))", sigmoid(a),                                       \
        "a b (1 - b), b = y", a * b * (one - b))                                                                  \
    LAYERMEM_ACTIVATION(FUNCTION, tanh, "tanh(a)", tanh(a),                                                       \
        "a (1 - b^2), b = y", a * (one - b * b))                                                                  \
    LAYERMEM_ACTIVATION(FUNCTION, absval, "|a|", abs(a),                                                          \
        "a sign(b), b = x", select(b > zero(), a, select(b < zero(), -a, zero())))                                \
    LAYERMEM_ACTIVATION(FUNCTION, power, "(beta a + gamma)^alpha", pow_any_sign(beta * a + gamma, args.alpha),    \
        "a alpha beta (beta b + gamma)^(alpha - 1), b = x",                                                       \
        a * (alpha * beta) * pow_any_sign(beta * b + gamma, args.alpha - 1.0f))                                   \
    LAYERMEM_ACTIVATION(FUNCTION, exp, "beta exp(alpha a)", beta * exp(alpha * a),                                \
        "a alpha b, b = y", a * alpha * b)                                                                        \
    LAYERMEM_ACTIVATION(FUNCTION, log, "gamma log(alpha a + beta)", gamma * log(alpha * a + beta),                \
        "a gamma alpha / (alpha b + beta), b = x", a * (gamma * alpha) / (alpha * b + beta))                      \
    LAYERMEM_ACTIVATION(FUNCTION, bnll, "log(1 + exp(a))", max(a, zero()) + log1p(exp(-abs(a))),                  \
        "a / (1 + exp(-b)), b = x", a * sigmoid(b))                                                               \
    LAYERMEM_ACTIVATION(FUNCTION, swish, "a / (1 + exp(-alpha a))", a * sigmoid(alpha * a),                       \
        "a (s + alpha b s (1 - s)), s = 1 / (1 + exp(-alpha b)), b = x", a * swish_slope(b, alpha))

#define LAYERMEM_ACTIVATION(FUNCTION, name, formula, value, derivative_formula, derivative) \
    FUNCTION(name, formula, value)                                                          \
    FUNCTION(name##_backward, derivative_formula, derivative)
// clang-format on

#define LAYERMEM_ENUMERATOR(name, formula, value) name,
enum class PointwiseKind { LAYERMEM_POINTWISE_KINDS(LAYERMEM_ENUMERATOR) };
#undef LAYERMEM_ENUMERATOR

}  // namespace layermem::cpu
