#include <pybind11/stl.h>

#include <utility>

#include "bind.h"
#include "bind_labels.h"
#include "lines.h"

namespace py = pybind11;

namespace layermem::cpu {
namespace {
using py::arg;
using Pair = std::pair<int64_t, int64_t>;

void bind_softmax(py::module_& m) {
    m.def(
        "softmax_forward",
        [](const Axis& s, Address y, Address x) { return Bound{softmax_forward(s, at<float>(y), at<float>(x))}; },
        arg("axis"), py::kw_only(), arg("y"), arg("x"));
    m.def(
        "softmax_backward",
        [](const Axis& s, Address dx, Address y, Address dy, bool accumulate) {
            return Bound{softmax_backward(s, at<float>(dx), at<float>(y), at<float>(dy), accumulate)};
        },
        arg("axis"), py::kw_only(), arg("dx"), arg("y"), arg("dy"), arg("accumulate") = false);
    m.def("softmax_loss_workspace", &softmax_loss_workspace, arg("axis"));
    m.def(
        "softmax_loss_forward",
        [](const Axis& s, Address loss, Address y, Address x, Address label, Label ignore_label, double divisor,
           Address scratch) {
            return Bound{softmax_loss_forward(s, at<float>(loss), at<float>(y), at<float>(x),
                                              labels(label, ignore_label, divisor), at<void>(scratch))};
        },
        arg("axis"), py::kw_only(), arg("loss"), arg("y") = 0, arg("x"), arg("label"), arg("ignore_label") = py::none(),
        arg("divisor") = 0, arg("scratch"));
    m.def("accuracy_workspace", &accuracy_workspace, arg("axis"), arg("by_class") = false);
    m.def(
        "accuracy",
        [](const Axis& s, Address share, Address by_class, Address x, Address label, Label ignore_label, int64_t top_k,
           Address scratch) {
            return Bound{accuracy(s, at<float>(share), at<float>(by_class), at<float>(x),
                                  labels(label, ignore_label, 0), top_k, at<void>(scratch))};
        },
        arg("axis"), py::kw_only(), arg("share"), arg("by_class") = 0, arg("x"), arg("label"),
        arg("ignore_label") = py::none(), arg("top_k") = 1, arg("scratch"));
    m.def(
        "softmax_loss_backward",
        [](const Axis& s, Address dx, Address x, Address label, Address dloss, Label ignore_label, double divisor,
           bool accumulate, Address scratch) {
            return Bound{softmax_loss_backward(s, at<float>(dx), at<float>(x), at<float>(dloss),
                                               labels(label, ignore_label, divisor), accumulate, at<void>(scratch))};
        },
        arg("axis"), py::kw_only(), arg("dx"), arg("x"), arg("label"), arg("dloss"), arg("ignore_label") = py::none(),
        arg("divisor") = 0, arg("accumulate") = false, arg("scratch"));
}

void bind_lrn(py::module_& m) {
    m.def(
        "lrn_workspace",
        [](int64_t n, int64_t h, int64_t w, int64_t c, int64_t size, bool across, bool backward) {
            return lrn_workspace(n, h, w, c, size, across, backward);
        },
        py::kw_only(), arg("n"), arg("h"), arg("w"), arg("c"), arg("size"), arg("across"), arg("backward"));
    m.def(
        "lrn_forward",
        [](int64_t n, int64_t h, int64_t w, int64_t c, int64_t size, bool across, float share, float shift, float beta,
           Address y, Address x, Address scratch) {
            return Bound{lrn_forward({n, h, w, c, size, share, shift, beta, at<float>(y), at<float>(x), nullptr, false},
                                     across, at<void>(scratch))};
        },
        py::kw_only(), arg("n"), arg("h"), arg("w"), arg("c"), arg("size"), arg("across"), arg("share"), arg("shift"),
        arg("beta"), arg("y"), arg("x"), arg("scratch"));
    m.def(
        "lrn_backward",
        [](int64_t n, int64_t h, int64_t w, int64_t c, int64_t size, bool across, float share, float shift, float beta,
           Address dx, Address x, Address dy, bool accumulate, Address scratch) {
            const LrnArgs g{n,         h, w, c, size, share, shift, beta, at<float>(dx), at<float>(x), at<float>(dy),
                            accumulate};
            return Bound{lrn_backward(g, across, at<void>(scratch))};
        },
        py::kw_only(), arg("n"), arg("h"), arg("w"), arg("c"), arg("size"), arg("across"), arg("share"), arg("shift"),
        arg("beta"), arg("dx"), arg("x"), arg("dy"), arg("accumulate") = false, arg("scratch"));
}

void bind_interp(py::module_& m) {
    m.def(
        "interp_forward",
        [](int64_t n, int64_t c, Pair size, Pair out, Pair first, Pair part, Address y, Address x) {
            return Bound{interp_forward({n, c, size.first, size.second, out.first, out.second, first.first, part.first,
                                         first.second, part.second, at<float>(y), at<float>(x), false})};
        },
        py::kw_only(), arg("n"), arg("c"), arg("size"), arg("out"), arg("first"), arg("part"), arg("y"), arg("x"));
    m.def(
        "interp_backward",
        [](int64_t n, int64_t c, Pair size, Pair out, Pair first, Pair part, Address dx, Address dy, bool accumulate) {
            return Bound{interp_backward({n, c, size.first, size.second, out.first, out.second, first.first, part.first,
                                          first.second, part.second, at<float>(dx), at<float>(dy), accumulate})};
        },
        py::kw_only(), arg("n"), arg("c"), arg("size"), arg("out"), arg("first"), arg("part"), arg("dx"), arg("dy"),
        arg("accumulate") = false);
}
}  // namespace

void bind_lines(py::module_& m) {
    py::class_<Axis>(m, "Axis", "[outer][size][inner]; channels of a channels-last image have inner = 1")
        .def(py::init([](int64_t outer, int64_t size, int64_t inner) {
                 const Axis s{outer, size, inner};
                 s.check();
                 return s;
             }),
             arg("outer"), arg("size"), arg("inner") = 1);
    bind_softmax(m);
    bind_lrn(m);
    bind_interp(m);
}

}  // namespace layermem::cpu
