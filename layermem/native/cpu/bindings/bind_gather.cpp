// Rows of a table by index.
#include "cpu/bindings/bind.h"
#include "cpu/kernels/gather.h"

namespace py = pybind11;

namespace layermem::cpu {
using py::arg;

void bind_gather(py::module_& m) {
    m.def(
        "gather_rows",
        [](int64_t rows, int64_t width, int64_t count, Address out, Address table, Address index, Address bias) {
            return BoundLaunch{
                gather_rows({rows, width, count, at<float>(out), at<float>(table), at<float>(index), at<float>(bias)})};
        },
        arg("rows"), arg("width"), py::kw_only(), arg("count"), arg("out"), arg("table"), arg("index"),
        arg("bias") = 0);
    m.def(
        "scatter_rows",
        [](int64_t rows, int64_t width, int64_t count, Address out, Address x, Address index, bool accumulate) {
            return BoundLaunch{
                scatter_rows({rows, width, count, at<float>(out), at<float>(x), at<float>(index), accumulate})};
        },
        arg("rows"), arg("width"), py::kw_only(), arg("count"), arg("out"), arg("x"), arg("index"),
        arg("accumulate") = false);
}

}  // namespace layermem::cpu
