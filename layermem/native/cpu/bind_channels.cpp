#include "bind.h"
#include "channels.h"

namespace py = pybind11;

namespace layermem::cpu {
namespace {
using py::arg;

void bind_scale(py::module_& m) {
    m.def(
        "scale_forward",
        [](const Channels& s, Address y, Address x, Address factor, Address bias) {
            return Bound{scale_forward(s, at<float>(y), at<float>(x), at<float>(factor), at<float>(bias))};
        },
        arg("shape"), py::kw_only(), arg("y"), arg("x"), arg("factor"), arg("bias") = 0);
    m.def(
        "bias_forward",
        [](const Channels& s, Address y, Address x, Address bias) {
            return Bound{bias_forward(s, at<float>(y), at<float>(x), at<float>(bias))};
        },
        arg("shape"), py::kw_only(), arg("y"), arg("x"), arg("bias"));
    m.def("scale_backward_workspace", &scale_backward_workspace, arg("shape"));
    m.def(
        "scale_backward",
        [](const Channels& s, Address dx, Address dfactor, Address dbias, Address x, Address dy, Address factor,
           bool accumulate_dx, bool accumulate_dfactor, bool accumulate_dbias, Address scratch) {
            const ScaleBackward p{at<float>(dx), at<float>(dfactor), at<float>(dbias),
                                  at<float>(x),  at<float>(dy),      at<float>(factor),
                                  accumulate_dx, accumulate_dfactor, accumulate_dbias};
            return Bound{scale_backward(s, p, at<void>(scratch))};
        },
        arg("shape"), py::kw_only(), arg("dx") = 0, arg("dfactor") = 0, arg("dbias") = 0, arg("x") = 0, arg("dy"),
        arg("factor") = 0, arg("accumulate_dx") = false, arg("accumulate_dfactor") = false,
        arg("accumulate_dbias") = false, arg("scratch") = 0);
}

void bind_batch_norm(py::module_& m) {
    for (const auto& [name, bytes] : {std::pair{"batch_norm_forward_workspace", &batch_norm_forward_workspace},
                                      std::pair{"batch_norm_global_workspace", &batch_norm_global_workspace},
                                      std::pair{"batch_norm_backward_workspace", &batch_norm_backward_workspace}})
        m.def(name, bytes, arg("shape"));
    m.def(
        "batch_norm_forward",
        [](const Channels& s, Address y, Address x, Address mean, Address inv_std, Address w0, Address w1, Address w2,
           float fraction, float eps, Address scratch) {
            const Averages averages{at<float>(w0), at<float>(w1), at<float>(w2), fraction};
            return Bound{batch_norm_forward(s, at<float>(y), at<float>(x), at<float>(mean), at<float>(inv_std),
                                            averages, eps, at<void>(scratch))};
        },
        arg("shape"), py::kw_only(), arg("y"), arg("x"), arg("mean"), arg("inv_std"), arg("w0") = 0, arg("w1") = 0,
        arg("w2") = 0, arg("fraction") = 0, arg("eps"), arg("scratch"));
    m.def(
        "batch_norm_replay",
        [](const Channels& s, Address y, Address x, Address mean, Address inv_std) {
            return Bound{batch_norm_replay(s, at<float>(y), at<float>(x), at<float>(mean), at<float>(inv_std))};
        },
        arg("shape"), py::kw_only(), arg("y"), arg("x"), arg("mean"), arg("inv_std"));
    m.def(
        "batch_norm_backward",
        [](const Channels& s, Address dx, Address x, Address dy, Address mean, Address inv_std, bool accumulate,
           Address scratch) {
            return Bound{batch_norm_backward(s, at<float>(dx), at<float>(x), at<float>(dy), at<float>(mean),
                                             at<float>(inv_std), accumulate, at<void>(scratch))};
        },
        arg("shape"), py::kw_only(), arg("dx"), arg("x"), arg("dy"), arg("mean"), arg("inv_std"),
        arg("accumulate") = false, arg("scratch"));
    m.def(
        "batch_norm_global_forward",
        [](const Channels& s, Address y, Address x, Address w0, Address w1, Address w2, float eps, Address scratch) {
            const Averages averages{at<float>(w0), at<float>(w1), at<float>(w2), 0};
            return Bound{batch_norm_global_forward(s, at<float>(y), at<float>(x), averages, eps, at<void>(scratch))};
        },
        arg("shape"), py::kw_only(), arg("y"), arg("x"), arg("w0"), arg("w1"), arg("w2"), arg("eps"), arg("scratch"));
    m.def(
        "batch_norm_global_backward",
        [](const Channels& s, Address dx, Address dy, Address w1, Address w2, float eps, bool accumulate,
           Address scratch) {
            const Averages averages{nullptr, at<float>(w1), at<float>(w2), 0};
            return Bound{batch_norm_global_backward(s, at<float>(dx), at<float>(dy), averages, eps, accumulate,
                                                    at<void>(scratch))};
        },
        arg("shape"), py::kw_only(), arg("dx"), arg("dy"), arg("w1"), arg("w2"), arg("eps"), arg("accumulate") = false,
        arg("scratch"));
}

void bind_fused(py::module_& m) {
    m.def("batch_norm_fused_workspace", &batch_norm_fused_workspace, arg("shape"));
    m.def(
        "batch_norm_fused_forward",
        [](const Channels& s, Address y, Address x, Address mean, Address inv_std, Address factor, Address bias,
           bool relu, Address w0, Address w1, Address w2, float fraction, float eps, bool replay, Address scratch) {
            const FusedNorm p{
                s, at<float>(x), at<float>(factor), at<float>(bias), at<float>(mean), at<float>(inv_std), relu};
            const Averages averages{at<float>(w0), at<float>(w1), at<float>(w2), fraction};
            return Bound{batch_norm_fused_forward(p, at<float>(y), averages, eps, replay, at<void>(scratch))};
        },
        arg("shape"), py::kw_only(), arg("y"), arg("x"), arg("mean"), arg("inv_std"), arg("factor"), arg("bias"),
        arg("relu"), arg("w0") = 0, arg("w1") = 0, arg("w2") = 0, arg("fraction") = 0, arg("eps") = 0,
        arg("replay") = false, arg("scratch"));
    m.def(
        "batch_norm_fused_global_forward",
        [](const Channels& s, Address y, Address x, Address w0, Address w1, Address w2, Address factor, Address bias,
           bool relu, float eps, Address scratch) {
            const FusedNorm p{s, at<float>(x), at<float>(factor), at<float>(bias), nullptr, nullptr, relu};
            const Averages averages{at<float>(w0), at<float>(w1), at<float>(w2), 0};
            return Bound{batch_norm_fused_global_forward(p, at<float>(y), averages, eps, at<void>(scratch))};
        },
        arg("shape"), py::kw_only(), arg("y"), arg("x"), arg("w0"), arg("w1"), arg("w2"), arg("factor"), arg("bias"),
        arg("relu"), arg("eps"), arg("scratch"));
    m.def(
        "batch_norm_fused_backward",
        [](const Channels& s, Address dx, Address dfactor, Address dbias, Address x, Address dy, Address mean,
           Address inv_std, Address factor, Address bias, bool relu, bool accumulate_dx, bool accumulate_dfactor,
           bool accumulate_dbias, Address scratch) {
            const FusedNorm p{
                s, at<float>(x), at<float>(factor), at<float>(bias), at<float>(mean), at<float>(inv_std), relu};
            const FusedGradients d{at<float>(dx), at<float>(dfactor), at<float>(dbias),
                                   accumulate_dx, accumulate_dfactor, accumulate_dbias};
            return Bound{batch_norm_fused_backward(p, d, at<float>(dy), at<void>(scratch))};
        },
        arg("shape"), py::kw_only(), arg("dx") = 0, arg("dfactor") = 0, arg("dbias") = 0, arg("x"), arg("dy"),
        arg("mean"), arg("inv_std"), arg("factor"), arg("bias"), arg("relu"), arg("accumulate_dx") = false,
        arg("accumulate_dfactor") = false, arg("accumulate_dbias") = false, arg("scratch"));
}

void bind_prelu(py::module_& m) {
    m.def(
        "prelu_forward",
        [](const Channels& s, Address y, Address x, Address slope) {
            return Bound{prelu_forward(s, at<float>(y), at<float>(x), at<float>(slope))};
        },
        arg("shape"), py::kw_only(), arg("y"), arg("x"), arg("slope"));
    m.def("prelu_backward_workspace", &prelu_backward_workspace, arg("shape"));
    m.def(
        "prelu_backward",
        [](const Channels& s, Address dx, Address dslope, Address x, Address dy, Address slope, bool accumulate_dx,
           bool accumulate_dslope, Address scratch) {
            return Bound{prelu_backward(s, at<float>(dx), at<float>(dslope), at<float>(x), at<float>(dy),
                                        at<float>(slope), accumulate_dx, accumulate_dslope, at<void>(scratch))};
        },
        arg("shape"), py::kw_only(), arg("dx") = 0, arg("dslope") = 0, arg("x"), arg("dy"), arg("slope") = 0,
        arg("accumulate_dx") = false, arg("accumulate_dslope") = false, arg("scratch") = 0);
}
}  // namespace

void bind_channels(py::module_& m) {
    py::class_<Channels>(m, "Channels", "[outer][channels][inner]; a channels-last image has inner = 1")
        .def(py::init([](int64_t outer, int64_t channels, int64_t inner) {
                 const Channels s{outer, channels, inner};
                 s.check();
                 return s;
             }),
             arg("outer"), arg("channels"), arg("inner") = 1);
    bind_scale(m);
    bind_batch_norm(m);
    bind_fused(m);
    bind_prelu(m);
}

}  // namespace layermem::cpu
