#include <utility>

#include "bind.h"
#include "convolution.h"

namespace py = pybind11;

namespace layermem::cpu {
namespace {
using Pair = std::pair<int64_t, int64_t>;

Conv geometry(int64_t n, int64_t c, int64_t h, int64_t w, int64_t k, Pair kernel, Pair stride, Pair pad, Pair dilation,
              int64_t groups) {
    const Conv g{n,
                 c,
                 h,
                 w,
                 k,
                 kernel.first,
                 kernel.second,
                 stride.first,
                 stride.second,
                 pad.first,
                 pad.second,
                 dilation.first,
                 dilation.second,
                 groups};
    g.check();
    return g;
}

void bind_kernels(py::module_& m) {
    using py::arg;
    m.def("conv_forward_workspace", &conv_forward_workspace, arg("geometry"));
    m.def("conv_backward_data_workspace", &conv_backward_data_workspace, arg("geometry"));
    m.def("conv_backward_weights_workspace", &conv_backward_weights_workspace, arg("geometry"));
    m.def(
        "conv_forward",
        [](const Conv& g, Address y, Address x, Address w, Address bias, bool accumulate, bool relu, Address mask,
           Address scratch) {
            return Bound{conv_forward(g, at<float>(y), at<float>(x), at<float>(w), at<float>(bias), accumulate, relu,
                                      at<uint8_t>(mask), at<void>(scratch))};
        },
        arg("geometry"), py::kw_only(), arg("y"), arg("x"), arg("w"), arg("bias") = 0, arg("accumulate") = false,
        arg("relu") = false, arg("mask") = 0, arg("scratch") = 0);
    m.def(
        "conv_backward_data",
        [](const Conv& g, Address dx, Address dy, Address w, Address bias, bool accumulate, Address scratch) {
            return Bound{conv_backward_data(g, at<float>(dx), at<float>(dy), at<float>(w), at<float>(bias), accumulate,
                                            at<void>(scratch))};
        },
        arg("geometry"), py::kw_only(), arg("dx"), arg("dy"), arg("w"), arg("bias") = 0, arg("accumulate") = false,
        arg("scratch") = 0);
    m.def(
        "conv_backward_weights",
        [](const Conv& g, Address dw, Address x, Address dy, bool accumulate, Address scratch) {
            return Bound{
                conv_backward_weights(g, at<float>(dw), at<float>(x), at<float>(dy), accumulate, at<void>(scratch))};
        },
        arg("geometry"), py::kw_only(), arg("dw"), arg("x"), arg("dy"), arg("accumulate") = false, arg("scratch") = 0);
    m.def("column_sums_workspace", &column_sums_workspace, arg("rows"), arg("columns"));
    m.def(
        "column_sums",
        [](int64_t rows, int64_t columns, Address out, Address in, bool accumulate, Address scratch) {
            return Bound{column_sums(rows, columns, at<float>(out), at<float>(in), accumulate, at<void>(scratch))};
        },
        arg("rows"), arg("columns"), py::kw_only(), arg("out"), arg("x"), arg("accumulate") = false,
        arg("scratch") = 0);
}

void bind_inner_product(py::module_& m) {
    using py::arg;
    m.def(
        "inner_product_forward",
        [](int64_t rows, int64_t n, int64_t k, Address y, Address x, Address w, Address bias, bool relu, Address mask) {
            return Bound{inner_product_forward(rows, n, k, at<float>(y), at<float>(x), at<float>(w), at<float>(bias),
                                               relu, at<uint8_t>(mask))};
        },
        arg("m"), arg("n"), arg("k"), py::kw_only(), arg("y"), arg("x"), arg("w"), arg("bias") = 0, arg("relu") = false,
        arg("mask") = 0);
    m.def(
        "inner_product_backward_data",
        [](int64_t rows, int64_t n, int64_t k, Address dx, Address dy, Address w, bool accumulate) {
            return Bound{
                inner_product_backward_data(rows, n, k, at<float>(dx), at<float>(dy), at<float>(w), accumulate)};
        },
        arg("m"), arg("n"), arg("k"), py::kw_only(), arg("dx"), arg("dy"), arg("w"), arg("accumulate") = false);
    m.def("inner_product_backward_weights_workspace", &inner_product_backward_weights_workspace, arg("m"), arg("n"),
          arg("k"));
    m.def(
        "inner_product_backward_weights",
        [](int64_t rows, int64_t n, int64_t k, Address dw, Address x, Address dy, bool accumulate, Address scratch) {
            return Bound{inner_product_backward_weights(rows, n, k, at<float>(dw), at<float>(x), at<float>(dy),
                                                        accumulate, at<void>(scratch))};
        },
        arg("m"), arg("n"), arg("k"), py::kw_only(), arg("dw"), arg("x"), arg("dy"), arg("accumulate") = false,
        arg("scratch") = 0);
}
}  // namespace

void bind_convolution(py::module_& m) {
    using py::arg;
    py::class_<Conv>(m, "Conv", "geometry of a convolution: x [n][h][w][c], w [k][kh][kw][c/groups], y [n][ho][wo][k]")
        .def(py::init(&geometry), py::kw_only(), arg("n"), arg("c"), arg("h"), arg("w"), arg("k"), arg("kernel"),
             arg("stride") = Pair(1, 1), arg("pad") = Pair(0, 0), arg("dilation") = Pair(1, 1), arg("groups") = 1)
        .def_property_readonly("ho", &Conv::ho)
        .def_property_readonly("wo", &Conv::wo);
    bind_kernels(m);
    bind_inner_product(m);
}

}  // namespace layermem::cpu
