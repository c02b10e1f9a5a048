// Axis, Softmax, its loss, and Accuracy.
#include "cpu/bindings/bind_labels.h"
#include "cpu/bindings/define.h"
#include "cpu/kernels/softmax.h"

namespace py = pybind11;

namespace layermem::cpu {

void bind_softmax(py::module_& m) {
    define_class<Axis>(
        m, "Axis",
        [](int64_t outer, int64_t size, int64_t inner) {
            const Axis axis{outer, size, inner};
            axis.check();
            return axis;
        },
        {arg("outer"), arg("size"), arg("inner") = 1},
        "[outer][size][inner]; channels of a channels-last image have inner = 1");
    define(m, "softmax_forward",
           [](const Axis& axis, Address y, Address x) {
               return BoundLaunch{softmax_forward(axis, at<float>(y), at<float>(x))};
           },
           {arg("axis"), kw_only(), arg("y"), arg("x")});
    define(m, "softmax_backward",
           [](const Axis& axis, Address dx, Address y, Address dy, bool accumulate) {
               return BoundLaunch{softmax_backward(axis, at<float>(dx), at<float>(y), at<float>(dy), accumulate)};
           },
           {arg("axis"), kw_only(), arg("dx"), arg("y"), arg("dy"), arg("accumulate") = false});
    define(m, "softmax_loss_workspace_bytes", &softmax_loss_workspace_bytes, {arg("axis")});
    define(m, "softmax_loss_carry_bytes", &softmax_loss_carry_bytes, {arg("axis")});
    define(
        m, "softmax_loss_forward",
        [](const Axis& axis, Address loss, Address y, Address x, Address label, const IgnoreLabel& ignore_label,
           double divisor, Address workspace, int64_t first, int64_t of, Address carry) {
            return BoundLaunch{softmax_loss_forward(axis, row_slice(axis.outer, first, of), at<float>(loss),
                                                    at<float>(y), at<float>(x), labels(label, ignore_label, divisor),
                                                    at<void>(workspace), at<void>(carry))};
        },
        {arg("axis"), kw_only(), arg("loss"), arg("y") = 0, arg("x"), arg("label"), arg("ignore_label") = std::nullopt,
         arg("divisor") = 0, arg("workspace"), arg("first") = 0, arg("of") = 0, arg("carry") = 0});
    define(m, "accuracy_workspace_bytes", &accuracy_workspace_bytes, {arg("axis"), arg("by_class") = false});
    define(m, "accuracy",
           [](const Axis& axis, Address y, Address by_class, Address x, Address label, const IgnoreLabel& ignore_label,
              int64_t top_k, Address workspace) {
               return BoundLaunch{accuracy(axis, at<float>(y), at<float>(by_class), at<float>(x),
                                           labels(label, ignore_label, 0), top_k, at<void>(workspace))};
           },
           {arg("axis"), kw_only(), arg("y"), arg("by_class") = 0, arg("x"), arg("label"),
            arg("ignore_label") = std::nullopt, arg("top_k") = 1, arg("workspace")});
    define(m, "softmax_loss_backward",
           [](const Axis& axis, Address dx, Address x, Address label, Address dloss, const IgnoreLabel& ignore_label,
              double divisor, bool accumulate, Address workspace, Address counted, int64_t of) {
               return BoundLaunch{softmax_loss_backward(
                   axis, at<float>(dx), at<float>(x), at<float>(dloss), labels(label, ignore_label, divisor),
                   accumulate, at<void>(workspace), counted_labels(label, axis.positions(), counted, of))};
           },
           {arg("axis"), kw_only(), arg("dx"), arg("x"), arg("label"), arg("dloss"), arg("ignore_label") = std::nullopt,
            arg("divisor") = 0, arg("accumulate") = false, arg("workspace"), arg("counted") = 0, arg("of") = 0});
}

}  // namespace layermem::cpu
