#include <pybind11/stl.h>

#include "activation.h"
#include "bind.h"
#include "convolution.h"
#include "eltwise.h"

namespace py = pybind11;

namespace layermem::cpu {
namespace {
using py::arg;
using Addresses = std::vector<Address>;

const std::vector<std::pair<const char*, Op>> OPS = {
    {"fill", Op::fill},
    {"scale", Op::scale},
    {"sigmoid", Op::sigmoid},
    {"tanh", Op::tanh},
    {"elu", Op::elu},
    {"absolute", Op::absolute},
    {"exponential", Op::exponential},
    {"logarithm", Op::logarithm},
    {"power", Op::power},
    {"softplus", Op::softplus},
    {"clip", Op::clip},
    {"swish", Op::swish},
    {"threshold", Op::threshold},
    {"add", Op::add},
    {"multiply", Op::multiply},
    {"relu_slope", Op::relu_slope},
    {"sigmoid_slope", Op::sigmoid_slope},
    {"tanh_slope", Op::tanh_slope},
    {"elu_slope", Op::elu_slope},
    {"absolute_slope", Op::absolute_slope},
    {"exponential_slope", Op::exponential_slope},
    {"logarithm_slope", Op::logarithm_slope},
    {"power_slope", Op::power_slope},
    {"softplus_slope", Op::softplus_slope},
    {"clip_slope", Op::clip_slope},
    {"swish_slope", Op::swish_slope},
};

Op op_named(const std::string& name) {
    for (const auto& [known, op] : OPS)
        if (name == known) return op;
    throw std::invalid_argument("map: there is no function '" + name + "'");
}

const std::vector<std::pair<const char*, Rule>> RULES = {
    {"SGD", Rule::sgd},         {"Nesterov", Rule::nesterov}, {"AdaGrad", Rule::adagrad},
    {"RMSProp", Rule::rmsprop}, {"AdaDelta", Rule::adadelta}, {"Adam", Rule::adam},
};

Rule rule_named(const std::string& name) {
    for (const auto& [known, rule] : RULES)
        if (name == known) return rule;
    throw std::invalid_argument("update: there is no rule '" + name + "'");
}

Update rule_with(const std::string& rule, Address w, Address dw, Address h0, Address h1, float decay, bool l1,
                 float momentum, float momentum2, float delta) {
    Update g{};
    g.rule = rule_named(rule), g.w = at<float>(w), g.dw = at<float>(dw);
    g.h0 = at<float>(h0), g.h1 = at<float>(h1), g.decay = decay, g.l1 = l1;
    g.momentum = momentum, g.momentum2 = momentum2, g.delta = delta;
    const bool two = g.rule == Rule::adadelta || g.rule == Rule::adam;
    if (!h0 || two != (h1 != 0))
        throw std::invalid_argument("update: " + rule + " keeps " + (two ? "two histories" : "one history"));
    return g;
}

void bind_activations(py::module_& m) {
    m.def(
        "map",
        [](const std::string& op, int64_t count, Address out, Address a, Address b, float p, float q, float r,
           bool accumulate) {
            return Bound{
                map_elements(count, {op_named(op), at<float>(out), at<float>(a), at<float>(b), p, q, r, accumulate})};
        },
        arg("op"), arg("count"), py::kw_only(), arg("out"), arg("a") = 0, arg("b") = 0, arg("p") = 0, arg("q") = 0,
        arg("r") = 0, arg("accumulate") = false);
    m.def(
        "relu_forward",
        [](int64_t count, Address y, Address x, float slope, Address mask) {
            return Bound{relu_forward(count, {at<float>(y), at<float>(x), at<uint8_t>(mask), slope, false})};
        },
        arg("count"), py::kw_only(), arg("y"), arg("x"), arg("slope") = 0, arg("mask") = 0);
    m.def(
        "relu_backward",
        [](int64_t count, Address dx, Address dy, Address mask, float slope, bool accumulate) {
            return Bound{relu_backward(count, {at<float>(dx), at<float>(dy), at<uint8_t>(mask), slope, accumulate})};
        },
        arg("count"), py::kw_only(), arg("dx"), arg("dy"), arg("mask"), arg("slope") = 0, arg("accumulate") = false);
    m.def(
        "clip_forward",
        [](int64_t count, Address y, Address x, Address mask, float lowest, float highest) {
            return Bound{clip_forward(count, {at<float>(y), at<float>(x), at<uint8_t>(mask), lowest, highest})};
        },
        arg("count"), py::kw_only(), arg("y"), arg("x"), arg("mask"), arg("lowest"), arg("highest"));
    m.def(
        "dropout",
        [](int64_t count, Address out, Address x, double ratio, uint64_t seed, uint32_t stream, bool accumulate) {
            return Stepped{dropout(count, at<float>(out), at<float>(x), ratio, seed, stream, accumulate)};
        },
        arg("count"), py::kw_only(), arg("out"), arg("x"), arg("ratio"), arg("seed"), arg("stream"),
        arg("accumulate") = false);
}

void bind_eltwise(py::module_& m) {
    m.def(
        "eltwise_sum",
        [](int64_t count, Address y, const Addresses& xs, std::vector<float> coefficients, bool relu, Address mask) {
            return Bound{eltwise_sum(count, at<float>(y), at_each<const float>(xs), std::move(coefficients), relu,
                                     at<uint8_t>(mask))};
        },
        arg("count"), py::kw_only(), arg("y"), arg("xs"), arg("coefficients"), arg("relu") = false, arg("mask") = 0);
    m.def(
        "eltwise_product",
        [](int64_t count, Address y, const Addresses& xs) {
            return Bound{eltwise_product(count, at<float>(y), at_each<const float>(xs))};
        },
        arg("count"), py::kw_only(), arg("y"), arg("xs"));
    m.def(
        "eltwise_max",
        [](int64_t count, Address y, const Addresses& xs, Address winner) {
            return Bound{eltwise_max(count, at<float>(y), at_each<const float>(xs), at<uint8_t>(winner))};
        },
        arg("count"), py::kw_only(), arg("y"), arg("xs"), arg("winner") = 0);
    m.def(
        "eltwise_sum_backward",
        [](int64_t count, const Addresses& dxs, Address dy, std::vector<float> coefficients,
           std::vector<bool> accumulate, Address mask, Address y) {
            return Bound{eltwise_sum_backward(count, at_each<float>(dxs), at<float>(dy), std::move(coefficients),
                                              std::move(accumulate), at<uint8_t>(mask), at<float>(y))};
        },
        arg("count"), py::kw_only(), arg("dxs"), arg("dy"), arg("coefficients"), arg("accumulate"), arg("mask") = 0,
        arg("y") = 0);
    m.def(
        "eltwise_product_backward",
        [](int64_t count, const Addresses& dxs, const Addresses& xs, Address dy, std::vector<bool> accumulate) {
            return Bound{eltwise_product_backward(count, at_each<float>(dxs), at_each<const float>(xs), at<float>(dy),
                                                  std::move(accumulate))};
        },
        arg("count"), py::kw_only(), arg("dxs"), arg("xs"), arg("dy"), arg("accumulate"));
    m.def(
        "eltwise_max_backward",
        [](int64_t count, const Addresses& dxs, Address dy, Address winner, std::vector<bool> accumulate) {
            return Bound{eltwise_max_backward(count, at_each<float>(dxs), at<float>(dy), at<uint8_t>(winner),
                                              std::move(accumulate))};
        },
        arg("count"), py::kw_only(), arg("dxs"), arg("dy"), arg("winner"), arg("accumulate"));
}

void bind_updates(py::module_& m) {
    m.def(
        "update",
        [](const std::string& rule, int64_t count, Address w, Address dw, Address h0, Address h1, float decay, bool l1,
           float momentum, float momentum2, float delta) {
            return Rated{update(count, rule_with(rule, w, dw, h0, h1, decay, l1, momentum, momentum2, delta))};
        },
        arg("rule"), arg("count"), py::kw_only(), arg("w"), arg("dw"), arg("h0"), arg("h1") = 0, arg("decay") = 0,
        arg("l1") = false, arg("momentum") = 0, arg("momentum2") = 0, arg("delta") = 0);
    m.def(
        "inner_product_learn",
        [](const std::string& rule, int64_t rows, int64_t n, int64_t k, Address x, Address dy, Address w, Address h0,
           Address h1, float decay, bool l1, float momentum, float momentum2, float delta) {
            const Update g = rule_with(rule, w, 0, h0, h1, decay, l1, momentum, momentum2, delta);
            return Rated{inner_product_learn(rows, n, k, at<float>(x), at<float>(dy), g)};
        },
        arg("rule"), arg("m"), arg("n"), arg("k"), py::kw_only(), arg("x"), arg("dy"), arg("w"), arg("h0"),
        arg("h1") = 0, arg("decay") = 0, arg("l1") = false, arg("momentum") = 0, arg("momentum2") = 0,
        arg("delta") = 0);
    m.def(
        "sum_of_squares",
        [](const std::vector<int64_t>& counts, Address out, const Addresses& xs, bool root) {
            return Bound{sum_of_squares(at<float>(out), at_each<const float>(xs), counts, root)};
        },
        arg("counts"), py::kw_only(), arg("out"), arg("xs"), arg("root") = false);
}
}  // namespace

void bind_elements(py::module_& m) {
    bind_activations(m);
    bind_eltwise(m);
    bind_updates(m);
}

}  // namespace layermem::cpu
