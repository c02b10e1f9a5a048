#include "cpu/bindings/bind_update.h"
#include "cpu/bindings/define.h"
#include "cpu/kernels/inner_product.h"

namespace py = pybind11;

namespace layermem::cpu {

void bind_inner_product(py::module_& m) {
    define(m, "inner_product_fprop",
           [](int64_t rows, int64_t n, int64_t k, Address y, Address x, Address w, Address bias, bool relu,
              Address mask, float largest_zero) {
               return BoundLaunch{inner_product_fprop(rows, n, k, at<float>(y), at<float>(x), at<float>(w),
                                                      at<float>(bias), relu, {at<uint8_t>(mask), largest_zero})};
           },
           {arg("m"), arg("n"), arg("k"), kw_only(), arg("y"), arg("x"), arg("w"), arg("bias") = 0, arg("relu") = false,
            arg("mask") = 0, arg("largest_zero") = 0});
    define(
        m, "inner_product_dgrad",
        [](int64_t rows, int64_t n, int64_t k, Address dx, Address dy, Address w, bool accumulate, int64_t dy_outputs) {
            return BoundLaunch{
                inner_product_dgrad(rows, n, k, at<float>(dx), at<float>(dy), at<float>(w), accumulate, dy_outputs)};
        },
        {arg("m"), arg("n"), arg("k"), kw_only(), arg("dx"), arg("dy"), arg("w"), arg("accumulate") = false,
         arg("dy_outputs") = 0});
    define(m, "inner_product_wgrad_workspace_bytes",
           [](int64_t rows, int64_t n, int64_t k, int64_t first, int64_t of) {
               return inner_product_wgrad_workspace_bytes(row_slice(rows, first, of), n, k);
           },
           {arg("m"), arg("n"), arg("k"), arg("first") = 0, arg("of") = 0});
    define(
        m, "inner_product_wgrad_carry_bytes",
        [](int64_t rows, int64_t n, int64_t k) { return inner_product_wgrad_carry_bytes(row_slice(rows, 0, 0), n, k); },
        {arg("m"), arg("n"), arg("k")});
    define(m, "inner_product_wgrad",
           [](int64_t rows, int64_t n, int64_t k, Address dw, Address x, Address dy, bool accumulate, Address workspace,
              int64_t first, int64_t of, Address carry) {
               return BoundLaunch{inner_product_wgrad(row_slice(rows, first, of), n, k, at<float>(dw), at<float>(x),
                                                      at<float>(dy), accumulate, at<void>(workspace), at<void>(carry))};
           },
           {arg("m"), arg("n"), arg("k"), kw_only(), arg("dw"), arg("x"), arg("dy"), arg("accumulate") = false,
            arg("workspace") = 0, arg("first") = 0, arg("of") = 0, arg("carry") = 0});
    define(
        m, "inner_product_band_wgrad",
        [](int64_t rows, int64_t n, int64_t k, Address dw, Address x, Address dy, int64_t dy_outputs, bool accumulate) {
            return BoundLaunch{inner_product_band_wgrad(rows, n, k, at<float>(dw), at<float>(x), at<float>(dy),
                                                        dy_outputs, accumulate)};
        },
        {arg("m"), arg("n"), arg("k"), kw_only(), arg("dw"), arg("x"), arg("dy"), arg("dy_outputs"),
         arg("accumulate") = false});
    define(m, "inner_product_backward_update",
           [](const std::string& rule, int64_t rows, int64_t n, int64_t k, Address x, Address dy, Address w, Address h0,
              Address h1, float decay, bool l1, float momentum, float momentum2, float delta, int64_t dy_outputs) {
               const Update args = update_args(rule, w, 0, h0, h1, decay, l1, momentum, momentum2, delta);
               return BoundUpdateLaunch{
                   inner_product_backward_update(rows, n, k, at<float>(x), at<float>(dy), args, dy_outputs)};
           },
           {arg("rule"), arg("m"), arg("n"), arg("k"), kw_only(), arg("x"), arg("dy"), arg("w"), arg("h0") = 0,
            arg("h1") = 0, arg("decay") = 0, arg("l1") = false, arg("momentum") = 0, arg("momentum2") = 0,
            arg("delta") = 0, arg("dy_outputs") = 0});
}

}  // namespace layermem::cpu
