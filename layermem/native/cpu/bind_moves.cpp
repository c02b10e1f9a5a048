#include <pybind11/stl.h>

#include "bind.h"
#include "moves.h"

namespace py = pybind11;

namespace layermem::cpu {

void bind_moves(py::module_& m) {
    using py::arg;
    m.def(
        "copy_rows",
        [](int64_t rows, int64_t width, Address out, int64_t out_pitch, Address x, int64_t x_pitch, bool accumulate) {
            return Bound{copy_rows({at<float>(out), at<float>(x), rows, width, out_pitch, x_pitch, accumulate})};
        },
        arg("rows"), arg("width"), py::kw_only(), arg("out"), arg("out_pitch"), arg("x"), arg("x_pitch"),
        arg("accumulate") = false);
    m.def(
        "transpose",
        [](int64_t n, int64_t rows, int64_t columns, Address out, Address x, bool accumulate) {
            return Bound{transpose({at<float>(out), at<float>(x), n, rows, columns, accumulate})};
        },
        arg("n"), arg("rows"), arg("columns"), py::kw_only(), arg("out"), arg("x"), arg("accumulate") = false);
    m.def(
        "copy_block",
        [](std::vector<int64_t> shape, Address out, std::vector<int64_t> out_strides, Address x,
           std::vector<int64_t> x_strides, bool accumulate) {
            return Bound{copy_block(at<float>(out), at<float>(x), std::move(shape), std::move(out_strides),
                                    std::move(x_strides), accumulate)};
        },
        arg("shape"), py::kw_only(), arg("out"), arg("out_strides"), arg("x"), arg("x_strides"),
        arg("accumulate") = false);
}

}  // namespace layermem::cpu
