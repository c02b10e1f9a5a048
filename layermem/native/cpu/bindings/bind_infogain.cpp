// InfogainLoss.
#include "cpu/bindings/bind.h"
#include "cpu/bindings/bind_labels.h"
#include "cpu/kernels/infogain.h"

namespace py = pybind11;

namespace layermem::cpu {
using py::arg;

void bind_infogain(py::module_& m) {
    m.def("infogain_loss_workspace_bytes", &infogain_loss_workspace_bytes, arg("axis"));
    m.def(
        "infogain_loss_forward",
        [](const Axis& axis, Address loss, Address p, Address label, Address matrix, const IgnoreLabel& ignore_label,
           double divisor, Address workspace) {
            const InfogainArgs args{axis, at<float>(p), at<float>(matrix), labels(label, ignore_label, divisor)};
            return BoundLaunch{infogain_loss_forward(args, at<float>(loss), at<void>(workspace))};
        },
        arg("axis"), py::kw_only(), arg("loss"), arg("p"), arg("label"), arg("matrix"),
        arg("ignore_label") = py::none(), arg("divisor") = 0, arg("workspace"));
    m.def(
        "infogain_loss_backward",
        [](const Axis& axis, Address dx, Address p, Address label, Address matrix, Address dloss,
           const IgnoreLabel& ignore_label, double divisor, bool accumulate, Address workspace) {
            const InfogainArgs args{axis, at<float>(p), at<float>(matrix), labels(label, ignore_label, divisor)};
            return BoundLaunch{
                infogain_loss_backward(args, at<float>(dx), at<float>(dloss), accumulate, at<void>(workspace))};
        },
        arg("axis"), py::kw_only(), arg("dx"), arg("p"), arg("label"), arg("matrix"), arg("dloss"),
        arg("ignore_label") = py::none(), arg("divisor") = 0, arg("accumulate") = false, arg("workspace"));
}

}  // namespace layermem::cpu
