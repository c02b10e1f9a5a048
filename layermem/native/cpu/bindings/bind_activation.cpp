// Pointwise functions, ReLU, Clip, PReLU and Dropout.
#include <string>

#include "cpu/bindings/define.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/dropout.h"
#include "cpu/kernels/prelu.h"
#include "cpu/kernels/stored.h"

namespace py = pybind11;

namespace layermem::cpu {
namespace {
void bind_prelu(py::module_& m) {
    define(m, "prelu_forward",
           [](const Channels& shape, Address y, Address x, Address slope) {
               return BoundLaunch{prelu_forward(shape, at<float>(y), at<float>(x), at<float>(slope))};
           },
           {arg("shape"), kw_only(), arg("y"), arg("x"), arg("slope")});
    define(m, "prelu_backward_workspace_bytes", &prelu_backward_workspace_bytes, {arg("shape")});
    define(
        m, "prelu_backward",
        [](const Channels& shape, Address dx, Address dslope, Address x, Address dy, Address slope, bool accumulate_dx,
           bool accumulate_dslope, Address workspace) {
            return BoundLaunch{prelu_backward(shape, at<float>(dx), at<float>(dslope), at<float>(x), at<float>(dy),
                                              at<float>(slope), accumulate_dx, accumulate_dslope, at<void>(workspace))};
        },
        {arg("shape"), kw_only(), arg("dx") = 0, arg("dslope") = 0, arg("x"), arg("dy"), arg("slope") = 0,
         arg("accumulate_dx") = false, arg("accumulate_dslope") = false, arg("workspace") = 0});
}
}  // namespace

void bind_activation(py::module_& m) {
    define(m, "pointwise",
           [](const std::string& kind, int64_t count, Address out, Address a, Address b, float alpha, float beta,
              float gamma, bool accumulate, const std::string& storage) {
               const Pointwise args{
                   pointwise_kind(kind), at<float>(out), at<float>(a), at<float>(b), alpha, beta, gamma, accumulate};
               return BoundLaunch{pointwise(count, args, storage_named(storage))};
           },
           {arg("kind"), arg("count"), kw_only(), arg("out"), arg("a") = 0, arg("b") = 0, arg("alpha") = 0,
            arg("beta") = 0, arg("gamma") = 0, arg("accumulate") = false, arg("storage") = ""});
    define(m, "relu_forward",
           [](int64_t count, Address y, Address x, float slope, Address mask, float largest_zero,
              const std::string& storage) {
               const ReluMask bits{at<uint8_t>(mask), largest_zero};
               return BoundLaunch{
                   relu_forward(count, {at<float>(y), at<float>(x), bits, slope, false}, storage_named(storage))};
           },
           {arg("count"), kw_only(), arg("y"), arg("x"), arg("slope") = 0, arg("mask") = 0, arg("largest_zero") = 0,
            arg("storage") = ""});
    define(
        m, "relu_backward",
        [](int64_t count, Address dx, Address dy, Address mask, float slope, bool accumulate,
           const std::string& storage) {
            return BoundLaunch{relu_backward(
                count, {at<float>(dx), at<float>(dy), {at<uint8_t>(mask)}, slope, accumulate}, storage_named(storage))};
        },
        {arg("count"), kw_only(), arg("dx"), arg("dy"), arg("mask"), arg("slope") = 0, arg("accumulate") = false,
         arg("storage") = ""});
    define(
        m, "clip_forward",
        [](int64_t count, Address y, Address x, Address mask, float lowest, float highest, const std::string& storage) {
            return BoundLaunch{clip_forward(count, {at<float>(y), at<float>(x), at<uint8_t>(mask), lowest, highest},
                                            storage_named(storage))};
        },
        {arg("count"), kw_only(), arg("y"), arg("x"), arg("mask"), arg("lowest"), arg("highest"), arg("storage") = ""});
    define(m, "dropout",
           [](int64_t count, Address out, Address x, double ratio, uint64_t seed, uint32_t stream, bool accumulate,
              int64_t first) {
               return BoundStepLaunch{
                   dropout(count, first, at<float>(out), at<float>(x), ratio, seed, stream, accumulate)};
           },
           {arg("count"), kw_only(), arg("out"), arg("x"), arg("ratio"), arg("seed"), arg("stream"),
            arg("accumulate") = false, arg("first") = 0});
    bind_prelu(m);
}

}  // namespace layermem::cpu
