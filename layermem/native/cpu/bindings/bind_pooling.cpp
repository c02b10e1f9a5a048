#include "cpu/bindings/define.h"
#include "cpu/kernels/pooling.h"
#include "cpu/kernels/stored.h"
#include "cpu/kernels/unpool.h"

namespace py = pybind11;

namespace layermem::cpu {

void bind_pooling(py::module_& m) {
    define_class<PoolProblem>(
        m, "PoolProblem",
        [](int64_t n, int64_t c, int64_t h, int64_t w, Pair out, Pair kernel, Pair stride, Pair pad) {
            const auto [ho, wo] = out;
            const auto [kh, kw] = kernel;
            const auto [sh, sw] = stride;
            const auto [ph, pw] = pad;
            const PoolProblem p{n, c, h, w, ho, wo, kh, kw, sh, sw, ph, pw};
            p.check();
            return p;
        },
        {kw_only(), arg("n"), arg("c"), arg("h"), arg("w"), arg("out"), arg("kernel"), arg("stride") = Pair(1, 1),
         arg("pad") = Pair(0, 0)},
        "geometry of pooling: x [n][h][w][c] -> y [n][out][c]; out as Caffe rounds it");
    define(m, "max_pool_forward",
           [](const PoolProblem& p, Address y, Address x, Address argmax, const std::string& storage) {
               return BoundLaunch{
                   max_pool_forward(p, at<float>(y), at<float>(x), at<void>(argmax), storage_named(storage))};
           },
           {arg("problem"), kw_only(), arg("y"), arg("x"), arg("argmax") = 0, arg("storage") = ""});
    define(
        m, "max_pool_backward",
        [](const PoolProblem& p, Address dx, Address dy, Address argmax, bool accumulate, const std::string& storage) {
            return BoundLaunch{max_pool_backward(p, at<float>(dx), at<float>(dy), at<void>(argmax), accumulate,
                                                 storage_named(storage))};
        },
        {arg("problem"), kw_only(), arg("dx"), arg("dy"), arg("argmax"), arg("accumulate") = false,
         arg("storage") = ""});
    define(m, "average_pool_forward",
           [](const PoolProblem& p, Address y, Address x, const std::string& storage) {
               return BoundLaunch{average_pool_forward(p, at<float>(y), at<float>(x), storage_named(storage))};
           },
           {arg("problem"), kw_only(), arg("y"), arg("x"), arg("storage") = ""});
    define(m, "average_pool_backward",
           [](const PoolProblem& p, Address dx, Address dy, bool accumulate, const std::string& storage) {
               return BoundLaunch{
                   average_pool_backward(p, at<float>(dx), at<float>(dy), accumulate, storage_named(storage))};
           },
           {arg("problem"), kw_only(), arg("dx"), arg("dy"), arg("accumulate") = false, arg("storage") = ""});
    define(m, "max_pool_mask",
           [](const PoolProblem& p, Address mask, Address argmax) {
               return BoundLaunch{max_pool_mask(p, at<float>(mask), at<void>(argmax))};
           },
           {arg("problem"), kw_only(), arg("mask"), arg("argmax")});
    define(
        m, "stochastic_pool_forward",
        [](const PoolProblem& p, Address y, Address x, Address argmax, uint64_t seed, uint32_t stream, int64_t first) {
            return BoundStepLaunch{
                stochastic_pool_forward(p, at<float>(y), at<float>(x), at<void>(argmax), seed, stream, first)};
        },
        {arg("problem"), kw_only(), arg("y"), arg("x"), arg("argmax") = 0, arg("seed"), arg("stream"),
         arg("first") = 0});
    define(m, "stochastic_pool_average",
           [](const PoolProblem& p, Address y, Address x) {
               return BoundLaunch{stochastic_pool_average(p, at<float>(y), at<float>(x))};
           },
           {arg("problem"), kw_only(), arg("y"), arg("x")});
    define(m, "unpool_forward",
           [](int64_t n, int64_t c, int64_t pixels, int64_t plane, Address y, Address x, Address mask) {
               return BoundLaunch{
                   unpool_forward(n, c, pixels, plane, at<float>(y), at<const float>(x), at<const float>(mask))};
           },
           {arg("n"), arg("c"), arg("pixels"), arg("plane"), kw_only(), arg("y"), arg("x"), arg("mask")});
    define(
        m, "unpool_backward",
        [](int64_t n, int64_t c, int64_t pixels, int64_t plane, Address dx, Address dy, Address mask, bool accumulate) {
            return BoundLaunch{unpool_backward(n, c, pixels, plane, at<float>(dx), at<const float>(dy),
                                               at<const float>(mask), accumulate)};
        },
        {arg("n"), arg("c"), arg("pixels"), arg("plane"), kw_only(), arg("dx"), arg("dy"), arg("mask"),
         arg("accumulate") = false});
}

}  // namespace layermem::cpu
