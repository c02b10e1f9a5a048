// Strided copies, transpositions and interpolation.
#include <pybind11/stl.h>

#include "cpu/bindings/bind.h"
#include "cpu/kernels/copy.h"
#include "cpu/kernels/resize.h"

namespace py = pybind11;

namespace layermem::cpu {
namespace {
using py::arg;

InterpArgs interp_args(int64_t n, int64_t c, Pair size, Pair out, Pair begin, Pair region, float* to, const float* from,
                       bool accumulate) {
    const auto [h, w] = size;
    const auto [ho, wo] = out;
    return {n, c, h, w, ho, wo, begin.first, region.first, begin.second, region.second, to, from, accumulate};
}

void bind_interp(py::module_& m) {
    m.def(
        "interp_forward",
        [](int64_t n, int64_t c, Pair size, Pair out, Pair begin, Pair region, Address y, Address x) {
            return BoundLaunch{
                interp_forward(interp_args(n, c, size, out, begin, region, at<float>(y), at<float>(x), false))};
        },
        py::kw_only(), arg("n"), arg("c"), arg("size"), arg("out"), arg("begin"), arg("region"), arg("y"), arg("x"));
    m.def(
        "interp_backward",
        [](int64_t n, int64_t c, Pair size, Pair out, Pair begin, Pair region, Address dx, Address dy,
           bool accumulate) {
            return BoundLaunch{
                interp_backward(interp_args(n, c, size, out, begin, region, at<float>(dx), at<float>(dy), accumulate))};
        },
        py::kw_only(), arg("n"), arg("c"), arg("size"), arg("out"), arg("begin"), arg("region"), arg("dx"), arg("dy"),
        arg("accumulate") = false);
}

}  // namespace

void bind_copy(py::module_& m) {
    m.def(
        "copy_rows",
        [](int64_t rows, int64_t width, Address out, int64_t out_pitch, Address x, int64_t x_pitch, bool accumulate) {
            return BoundLaunch{copy_rows({at<float>(out), at<float>(x), rows, width, out_pitch, x_pitch, accumulate})};
        },
        arg("rows"), arg("width"), py::kw_only(), arg("out"), arg("out_pitch"), arg("x"), arg("x_pitch"),
        arg("accumulate") = false);
    m.def(
        "transpose",
        [](int64_t n, int64_t rows, int64_t columns, Address out, Address x, bool accumulate) {
            return BoundLaunch{transpose(n, rows, columns, at<float>(out), at<float>(x), accumulate)};
        },
        arg("n"), arg("rows"), arg("columns"), py::kw_only(), arg("out"), arg("x"), arg("accumulate") = false);
    m.def(
        "copy_block",
        [](const std::vector<int64_t>& shape, Address out, const std::vector<int64_t>& out_strides, Address x,
           const std::vector<int64_t>& x_strides, bool accumulate) {
            return BoundLaunch{copy_block(at<float>(out), at<float>(x), shape, out_strides, x_strides, accumulate)};
        },
        arg("shape"), py::kw_only(), arg("out"), arg("out_strides"), arg("x"), arg("x_strides"),
        arg("accumulate") = false);
    bind_interp(m);
}

}  // namespace layermem::cpu
