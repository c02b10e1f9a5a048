#include <utility>

#include "bind.h"
#include "pooling.h"

namespace py = pybind11;

namespace layermem::cpu {

void bind_pooling(py::module_& m) {
    using py::arg;
    using Pair = std::pair<int64_t, int64_t>;
    py::class_<Pool>(m, "Pool", "geometry of pooling: x [n][h][w][c] -> y [n][out][c]; out as Caffe rounds it")
        .def(py::init([](int64_t n, int64_t c, int64_t h, int64_t w, Pair out, Pair kernel, Pair stride, Pair pad) {
                 const Pool g{n,
                              c,
                              h,
                              w,
                              out.first,
                              out.second,
                              kernel.first,
                              kernel.second,
                              stride.first,
                              stride.second,
                              pad.first,
                              pad.second};
                 g.check();
                 return g;
             }),
             py::kw_only(), arg("n"), arg("c"), arg("h"), arg("w"), arg("out"), arg("kernel"),
             arg("stride") = Pair(1, 1), arg("pad") = Pair(0, 0));
    m.def(
        "max_pool_forward",
        [](const Pool& g, Address y, Address x, Address argmax) {
            return Bound{max_pool_forward(g, at<float>(y), at<float>(x), at<void>(argmax))};
        },
        arg("geometry"), py::kw_only(), arg("y"), arg("x"), arg("argmax") = 0);
    m.def(
        "max_pool_backward",
        [](const Pool& g, Address dx, Address dy, Address argmax, bool accumulate) {
            return Bound{max_pool_backward(g, at<float>(dx), at<float>(dy), at<void>(argmax), accumulate)};
        },
        arg("geometry"), py::kw_only(), arg("dx"), arg("dy"), arg("argmax"), arg("accumulate") = false);
    m.def(
        "average_pool_forward",
        [](const Pool& g, Address y, Address x) { return Bound{average_pool_forward(g, at<float>(y), at<float>(x))}; },
        arg("geometry"), py::kw_only(), arg("y"), arg("x"));
    m.def(
        "average_pool_backward",
        [](const Pool& g, Address dx, Address dy, bool accumulate) {
            return Bound{average_pool_backward(g, at<float>(dx), at<float>(dy), accumulate)};
        },
        arg("geometry"), py::kw_only(), arg("dx"), arg("dy"), arg("accumulate") = false);
}

}  // namespace layermem::cpu
