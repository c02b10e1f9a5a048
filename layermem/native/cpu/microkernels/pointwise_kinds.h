// The pointwise functions, each one row: its name and its formula, with a and b the inputs and alpha, beta, gamma the
// constants.  Names are those of cpu.pointwise in Python, formulas go into its documentation, and
// microkernels/activation.cpp computes them.  A new function is a row here and a case there.
//
// X_backward is the derivative of X times dy, with a = dy and b = x or y of forward, as its formula says.
#pragma once

namespace layermem::cpu {

// clang-format off
#define LAYERMEM_POINTWISE_KINDS(ROW)                                                      \
    ROW(fill,               "alpha")                                                       \
    ROW(scale,              "alpha a")                                                     \
    ROW(sigmoid,            "1 / (1 + exp(-a))")                                           \
    ROW(tanh,               "tanh(a)")                                                     \
    ROW(elu,                "a > 0 ? a : alpha (exp(a) - 1)")                              \
    ROW(absval,             "|a|")                                                         \
    ROW(exp,                "beta exp(alpha a)")                                           \
    ROW(log,                "gamma log(alpha a + beta)")                                   \
    ROW(power,              "(beta a + gamma)^alpha")                                      \
    ROW(bnll,               "log(1 + exp(a))")                                             \
    ROW(clip,               "min(max(a, alpha), beta)")                                    \
    ROW(swish,              "a / (1 + exp(-alpha a))")                                     \
    ROW(threshold,          "a > alpha ? 1 : 0")                                           \
    ROW(add,                "alpha a + beta b")                                            \
    ROW(multiply,           "a b")                                                         \
    ROW(relu_backward,      "a (b > 0 ? 1 : alpha), b = x or y")                           \
    ROW(sigmoid_backward,   "a b (1 - b), b = y")                                          \
    ROW(tanh_backward,      "a (1 - b^2), b = y")                                          \
    ROW(elu_backward,       "a (b > 0 ? 1 : alpha exp(b)), b = x")                         \
    ROW(absval_backward,    "a sign(b), b = x")                                            \
    ROW(exp_backward,       "a alpha b, b = y")                                            \
    ROW(log_backward,       "a gamma alpha / (alpha b + beta), b = x")                     \
    ROW(power_backward,     "a alpha beta (beta b + gamma)^(alpha - 1), b = x")            \
    ROW(bnll_backward,      "a / (1 + exp(-b)), b = x")                                    \
    ROW(clip_backward,      "alpha <= b <= beta ? a : 0, b = x")                           \
    ROW(swish_backward,     "a (s + alpha b s (1 - s)), s = 1 / (1 + exp(-alpha b)), b = x")
// clang-format on

#define LAYERMEM_ENUMERATOR(name, formula) name,
enum class PointwiseKind { LAYERMEM_POINTWISE_KINDS(LAYERMEM_ENUMERATOR) };
#undef LAYERMEM_ENUMERATOR

}  // namespace layermem::cpu
