#include <utility>

#include "cpu/bindings/define.h"
#include "cpu/kernels/eltwise.h"
#include "cpu/kernels/stored.h"

namespace py = pybind11;

namespace layermem::cpu {

using Addresses = std::vector<Address>;

void bind_eltwise(py::module_& m) {
    define(m, "eltwise_sum",
           [](int64_t count, Address y, const Addresses& xs, std::vector<float> coefficients, bool relu, Address mask,
              float largest_zero, const std::string& storage) {
               return BoundLaunch{eltwise_sum(count, at<float>(y), at_each<const float>(xs), std::move(coefficients),
                                              relu, {at<uint8_t>(mask), largest_zero}, storage_named(storage))};
           },
           {arg("count"), kw_only(), arg("y"), arg("xs"), arg("coefficients"), arg("relu") = false, arg("mask") = 0,
            arg("largest_zero") = 0, arg("storage") = ""});
    define(m, "eltwise_product",
           [](int64_t count, Address y, const Addresses& xs) {
               return BoundLaunch{eltwise_product(count, at<float>(y), at_each<const float>(xs))};
           },
           {arg("count"), kw_only(), arg("y"), arg("xs")});
    define(m, "eltwise_max",
           [](int64_t count, Address y, const Addresses& xs, Address argmax) {
               return BoundLaunch{eltwise_max(count, at<float>(y), at_each<const float>(xs), at<uint8_t>(argmax))};
           },
           {arg("count"), kw_only(), arg("y"), arg("xs"), arg("argmax") = 0});
    define(m, "eltwise_sum_backward",
           [](int64_t count, const Addresses& dxs, Address dy, std::vector<float> coefficients,
              std::vector<bool> accumulate, Address mask, Address y, const std::string& storage) {
               return BoundLaunch{eltwise_sum_backward(count, at_each<float>(dxs), at<float>(dy),
                                                       std::move(coefficients), std::move(accumulate),
                                                       at<uint8_t>(mask), at<float>(y), storage_named(storage))};
           },
           {arg("count"), kw_only(), arg("dxs"), arg("dy"), arg("coefficients"), arg("accumulate"), arg("mask") = 0,
            arg("y") = 0, arg("storage") = ""});
    define(m, "eltwise_product_backward",
           [](int64_t count, const Addresses& dxs, const Addresses& xs, Address dy, std::vector<bool> accumulate) {
               return BoundLaunch{eltwise_product_backward(count, at_each<float>(dxs), at_each<const float>(xs),
                                                           at<float>(dy), std::move(accumulate))};
           },
           {arg("count"), kw_only(), arg("dxs"), arg("xs"), arg("dy"), arg("accumulate")});
    define(m, "eltwise_max_backward",
           [](int64_t count, const Addresses& dxs, Address dy, Address argmax, std::vector<bool> accumulate) {
               return BoundLaunch{eltwise_max_backward(count, at_each<float>(dxs), at<float>(dy), at<uint8_t>(argmax),
                                                       std::move(accumulate))};
           },
           {arg("count"), kw_only(), arg("dxs"), arg("dy"), arg("argmax"), arg("accumulate")});
}

}  // namespace layermem::cpu
