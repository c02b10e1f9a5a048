// Vectors of length one.
#include "cpu/bindings/define.h"
#include "cpu/kernels/l2norm.h"

namespace py = pybind11;

namespace layermem::cpu {

void bind_l2norm(py::module_& m) {
    define(m, "l2norm_workspace_bytes",
           [](int64_t pixels, int64_t channels, int64_t group, bool shared, bool is_slice) {
               return l2norm_workspace_bytes({pixels, channels, group, shared}, is_slice);
           },
           {kw_only(), arg("pixels"), arg("channels"), arg("group"), arg("shared"), arg("is_slice") = false});
    define(m, "l2norm_carry_bytes", &l2norm_carry_bytes, {arg("pixels"), arg("channels")});
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
              Address x, Address dy, Address scale, bool accumulate_dx, bool accumulate_dscale, Address workspace,
              int64_t first, int64_t of, Address carry) {
               const L2NormBackward args{at<float>(dx),    at<float>(dscale), at<float>(x),     at<float>(dy),
                                         at<float>(scale), accumulate_dx,     accumulate_dscale};
               return BoundLaunch{l2norm_backward({pixels, channels, group, shared}, eps, args,
                                                  row_slice(pixels, first, of), at<void>(workspace), at<void>(carry))};
           },
           {kw_only(), arg("pixels"), arg("channels"), arg("group"), arg("shared"), arg("eps"), arg("dx") = 0,
            arg("dscale") = 0, arg("x"), arg("dy"), arg("scale") = 0, arg("accumulate_dx") = false,
            arg("accumulate_dscale") = false, arg("workspace"), arg("first") = 0, arg("of") = 0, arg("carry") = 0});
}

}  // namespace layermem::cpu
