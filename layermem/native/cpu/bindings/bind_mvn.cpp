// Mean and variance along an axis, removed.
#include "cpu/bindings/define.h"
#include "cpu/kernels/mvn.h"

namespace py = pybind11;

namespace layermem::cpu {
void bind_mvn(py::module_& m) {
    define(m, "mvn_forward",
           [](const Axis& axis, Address y, Address x, Address inv_std, bool normalize, float eps) {
               return BoundLaunch{mvn_forward({axis, at<float>(y), at<float>(x), at<float>(inv_std), normalize, eps})};
           },
           {arg("axis"), kw_only(), arg("y"), arg("x"), arg("inv_std") = 0, arg("normalize") = true, arg("eps")});
    define(m, "mvn_backward",
           [](const Axis& axis, Address dx, Address dy, Address y, Address inv_std, bool accumulate) {
               return BoundLaunch{
                   mvn_backward({axis, at<float>(dx), at<float>(dy), at<float>(y), at<float>(inv_std), accumulate})};
           },
           {arg("axis"), kw_only(), arg("dx"), arg("dy"), arg("y") = 0, arg("inv_std") = 0, arg("accumulate") = false});
}

}  // namespace layermem::cpu
