// Vectors of length one.
#include "cpu/bindings/define.h"
#include "cpu/kernels/l2norm.h"

namespace py = pybind11;

namespace layermem::cpu {

void bind_l2norm(py::module_& m) {
    define(m, "l2norm_workspace_bytes",
           [](int64_t pixels, int64_t channels, int64_t group, bool shared) {
               return l2norm_workspace_bytes({pixels, channels, group, shared});
           },
           {kw_only(), arg("pixels"), arg("channels"), arg("group"), arg("shared")});
    define(m, "l2norm_forward",
           [](int64_t pixels, int64_t channels, int64_t group, bool shared, float eps, Address y, Address x,
              Address scale, Address workspace) {
               return BoundLaunch{l2norm_forward({pixels, channels, group, shared}, eps, at<float>(y), at<float>(x),
                                                 at<float>(scale), at<void>(workspace))};
           },
           {kw_only(), arg("pixels"), arg("channels"), arg("group"), arg("shared"), arg("eps"), arg("y"), arg("x"),
            arg("scale"), arg("workspace")});
    define(m, "l2norm_backward",
           [](int64_t pixels, int64_t channels, int64_t group, bool shared, float eps, Address dx, Address dscale,
              Address x, Address dy, Address scale, bool accumulate_dx, bool accumulate_dscale, Address workspace) {
               const L2NormBackward args{at<float>(dx),    at<float>(dscale), at<float>(x),     at<float>(dy),
                                         at<float>(scale), accumulate_dx,     accumulate_dscale};
               return BoundLaunch{l2norm_backward({pixels, channels, group, shared}, eps, args, at<void>(workspace))};
           },
           {kw_only(), arg("pixels"), arg("channels"), arg("group"), arg("shared"), arg("eps"), arg("dx") = 0,
            arg("dscale") = 0, arg("x"), arg("dy"), arg("scale") = 0, arg("accumulate_dx") = false,
            arg("accumulate_dscale") = false, arg("workspace")});
}

}  // namespace layermem::cpu
