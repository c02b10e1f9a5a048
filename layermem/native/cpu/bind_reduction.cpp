#include "bind.h"
#include "reduction.h"

namespace py = pybind11;

namespace layermem::cpu {
namespace {
Term term_named(const std::string& name) {
    if (name == "plain") return Term::plain;
    if (name == "absolute") return Term::absolute;
    if (name == "square") return Term::square;
    throw std::invalid_argument("reduce: there is no term '" + name + "'");
}
}  // namespace

void bind_reduction(py::module_& m) {
    using py::arg;
    m.def("reduce_workspace", &reduce_workspace, arg("axis"));
    m.def(
        "reduce",
        [](const Axis& s, const std::string& term, Address y, Address x, float factor, bool accumulate,
           Address scratch) {
            return Bound{
                reduce(s, term_named(term), at<float>(y), at<float>(x), factor, accumulate, at<void>(scratch))};
        },
        arg("axis"), arg("term"), py::kw_only(), arg("y"), arg("x"), arg("factor") = 1.0f, arg("accumulate") = false,
        arg("scratch") = 0);
    m.def(
        "reduce_backward",
        [](const Axis& s, const std::string& term, Address dx, Address x, Address dy, float factor, bool accumulate) {
            return Bound{
                reduce_backward(s, term_named(term), at<float>(dx), at<float>(x), at<float>(dy), factor, accumulate)};
        },
        arg("axis"), arg("term"), py::kw_only(), arg("dx"), arg("x") = 0, arg("dy"), arg("factor") = 1.0f,
        arg("accumulate") = false);
    m.def("largest_workspace", &largest_workspace, arg("count"));
    m.def(
        "largest",
        [](int64_t rows, int64_t size, int64_t count, Address place, Address value, Address x, int64_t inner,
           int64_t pitch, Address scratch) {
            const Largest g{
                rows,        size, count, inner, pitch ? pitch : count * inner, at<float>(place), at<float>(value),
                at<float>(x)};
            return Bound{largest(g, at<void>(scratch))};
        },
        arg("rows"), arg("size"), arg("count"), py::kw_only(), arg("place") = 0, arg("value") = 0, arg("x"),
        arg("inner") = 1, arg("pitch") = 0, arg("scratch"));
}

}  // namespace layermem::cpu
