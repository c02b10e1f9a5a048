#include "cpu/bindings/bind.h"
#include "cpu/kernels/convolution.h"

namespace py = pybind11;

namespace layermem::cpu {
namespace {

ConvProblem conv_problem(int64_t n, int64_t c, int64_t h, int64_t w, int64_t k, Pair kernel, Pair stride, Pair pad,
                         Pair dilation, int64_t groups) {
    const auto [kh, kw] = kernel;
    const auto [sh, sw] = stride;
    const auto [ph, pw] = pad;
    const auto [dh, dw] = dilation;
    const ConvProblem p{n, c, h, w, k, kh, kw, sh, sw, ph, pw, dh, dw, groups};
    p.check();
    return p;
}

void bind_kernels(py::module_& m) {
    using py::arg;
    m.def("conv_fprop_workspace_bytes", &conv_fprop_workspace_bytes, arg("problem"));
    m.def("conv_dgrad_workspace_bytes", &conv_dgrad_workspace_bytes, arg("problem"));
    m.def("conv_wgrad_workspace_bytes", &conv_wgrad_workspace_bytes, arg("problem"));
    m.def(
        "conv_fprop",
        [](const ConvProblem& p, Address y, Address x, Address w, Address bias, bool accumulate, bool relu,
           Address mask, Address workspace) {
            return BoundLaunch{conv_fprop(p, at<float>(y), at<float>(x), at<float>(w), at<float>(bias), accumulate,
                                          relu, at<uint8_t>(mask), at<void>(workspace))};
        },
        arg("problem"), py::kw_only(), arg("y"), arg("x"), arg("w"), arg("bias") = 0, arg("accumulate") = false,
        arg("relu") = false, arg("mask") = 0, arg("workspace") = 0);
    m.def(
        "conv_dgrad",
        [](const ConvProblem& p, Address dx, Address dy, Address w, Address bias, bool accumulate, Address workspace) {
            return BoundLaunch{conv_dgrad(p, at<float>(dx), at<float>(dy), at<float>(w), at<float>(bias), accumulate,
                                          at<void>(workspace))};
        },
        arg("problem"), py::kw_only(), arg("dx"), arg("dy"), arg("w"), arg("bias") = 0, arg("accumulate") = false,
        arg("workspace") = 0);
    m.def(
        "conv_wgrad",
        [](const ConvProblem& p, Address dw, Address x, Address dy, bool accumulate, Address workspace) {
            return BoundLaunch{
                conv_wgrad(p, at<float>(dw), at<float>(x), at<float>(dy), accumulate, at<void>(workspace))};
        },
        arg("problem"), py::kw_only(), arg("dw"), arg("x"), arg("dy"), arg("accumulate") = false, arg("workspace") = 0);
}

}  // namespace

void bind_convolution(py::module_& m) {
    using py::arg;
    py::class_<ConvProblem>(m, "ConvProblem",
                            "geometry of a convolution: x [n][h][w][c], w [k][kh][kw][c/groups], y [n][ho][wo][k]")
        .def(py::init(&conv_problem), py::kw_only(), arg("n"), arg("c"), arg("h"), arg("w"), arg("k"), arg("kernel"),
             arg("stride") = Pair(1, 1), arg("pad") = Pair(0, 0), arg("dilation") = Pair(1, 1), arg("groups") = 1)
        .def_property_readonly("ho", &ConvProblem::ho)
        .def_property_readonly("wo", &ConvProblem::wo);
    bind_kernels(m);
}

}  // namespace layermem::cpu
