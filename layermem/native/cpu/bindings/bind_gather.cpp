// Rows of a table by index.
#include "cpu/bindings/define.h"
#include "cpu/kernels/gather.h"

namespace py = pybind11;

namespace layermem::cpu {
void bind_gather(py::module_& m) {
    define(
        m, "gather_rows",
        [](int64_t rows, int64_t width, int64_t count, Address out, Address table, Address index, Address bias) {
            return BoundLaunch{
                gather_rows({rows, width, count, at<float>(out), at<float>(table), at<float>(index), at<float>(bias)})};
        },
        {arg("rows"), arg("width"), kw_only(), arg("count"), arg("out"), arg("table"), arg("index"), arg("bias") = 0});
    define(m, "scatter_rows",
           [](int64_t rows, int64_t width, int64_t count, Address out, Address x, Address index, bool accumulate) {
               return BoundLaunch{
                   scatter_rows({rows, width, count, at<float>(out), at<float>(x), at<float>(index), accumulate})};
           },
           {arg("rows"), arg("width"), kw_only(), arg("count"), arg("out"), arg("x"), arg("index"),
            arg("accumulate") = false});
}

}  // namespace layermem::cpu
