// InfogainLoss.
#include "cpu/bindings/bind_labels.h"
#include "cpu/bindings/define.h"
#include "cpu/kernels/infogain.h"

namespace py = pybind11;

namespace layermem::cpu {
void bind_infogain(py::module_& m) {
    define(m, "infogain_loss_workspace_bytes", &infogain_loss_workspace_bytes, {arg("axis")});
    define(m, "infogain_loss_carry_bytes", &infogain_loss_carry_bytes, {arg("axis")});
    define(
        m, "infogain_loss_forward",
        [](const Axis& axis, Address loss, Address p, Address label, Address matrix, const IgnoreLabel& ignore_label,
           double divisor, Address workspace, int64_t first, int64_t of, Address carry) {
            const InfogainArgs args{axis, at<float>(p), at<float>(matrix), labels(label, ignore_label, divisor)};
            return BoundLaunch{infogain_loss_forward(args, row_slice(axis.positions(), first, of), at<float>(loss),
                                                     at<void>(workspace), at<void>(carry))};
        },
        {arg("axis"), kw_only(), arg("loss"), arg("p"), arg("label"), arg("matrix"), arg("ignore_label") = std::nullopt,
         arg("divisor") = 0, arg("workspace"), arg("first") = 0, arg("of") = 0, arg("carry") = 0});
    define(m, "infogain_loss_backward",
           [](const Axis& axis, Address dx, Address p, Address label, Address matrix, Address dloss,
              const IgnoreLabel& ignore_label, double divisor, bool accumulate, Address workspace, Address counted,
              int64_t of) {
               const InfogainArgs args{axis, at<float>(p), at<float>(matrix), labels(label, ignore_label, divisor)};
               return BoundLaunch{infogain_loss_backward(args, at<float>(dx), at<float>(dloss), accumulate,
                                                         at<void>(workspace),
                                                         counted_labels(label, axis.positions(), counted, of))};
           },
           {arg("axis"), kw_only(), arg("dx"), arg("p"), arg("label"), arg("matrix"), arg("dloss"),
            arg("ignore_label") = std::nullopt, arg("divisor") = 0, arg("accumulate") = false, arg("workspace"),
            arg("counted") = 0, arg("of") = 0});
}

}  // namespace layermem::cpu
