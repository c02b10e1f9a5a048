// Strided copies, transpositions, interpolation, and conversions between fp32 and 16 bits.
#include "cpu/bindings/define.h"
#include "cpu/kernels/copy.h"
#include "cpu/kernels/half.h"
#include "cpu/kernels/resize.h"

namespace py = pybind11;

namespace layermem::cpu {
namespace {
InterpArgs interp_args(int64_t n, int64_t c, Pair size, Pair out, Pair begin, Pair region, float* to, const float* from,
                       bool accumulate) {
    const auto [h, w] = size;
    const auto [ho, wo] = out;
    return {n, c, h, w, ho, wo, begin.first, region.first, begin.second, region.second, to, from, accumulate};
}

void bind_interp(py::module_& m) {
    define(m, "interp_forward",
           [](int64_t n, int64_t c, Pair size, Pair out, Pair begin, Pair region, Address y, Address x) {
               return BoundLaunch{
                   interp_forward(interp_args(n, c, size, out, begin, region, at<float>(y), at<float>(x), false))};
           },
           {kw_only(), arg("n"), arg("c"), arg("size"), arg("out"), arg("begin"), arg("region"), arg("y"), arg("x")});
    define(m, "interp_backward",
           [](int64_t n, int64_t c, Pair size, Pair out, Pair begin, Pair region, Address dx, Address dy,
              bool accumulate) {
               return BoundLaunch{interp_backward(
                   interp_args(n, c, size, out, begin, region, at<float>(dx), at<float>(dy), accumulate))};
           },
           {kw_only(), arg("n"), arg("c"), arg("size"), arg("out"), arg("begin"), arg("region"), arg("dx"), arg("dy"),
            arg("accumulate") = false});
}

template <Launch (*widen)(int64_t, float*, const uint16_t*)>
void bind_widen(py::module_& m, const char* name) {
    define(m, name,
           [](int64_t count, Address out, Address x) {
               return BoundLaunch{widen(count, at<float>(out), at<uint16_t>(x))};
           },
           {arg("count"), kw_only(), arg("out"), arg("x")});
}

template <Launch (*narrow)(int64_t, uint16_t*, const float*)>
void bind_narrow(py::module_& m, const char* name) {
    define(m, name,
           [](int64_t count, Address out, Address x) {
               return BoundLaunch{narrow(count, at<uint16_t>(out), at<float>(x))};
           },
           {arg("count"), kw_only(), arg("out"), arg("x")});
}

void bind_half(py::module_& m) {
    bind_widen<widen_bf16>(m, "widen_bf16");
    bind_narrow<narrow_bf16>(m, "narrow_bf16");
    bind_widen<widen_fp16>(m, "widen_fp16");
    bind_narrow<narrow_fp16>(m, "narrow_fp16");
}

}  // namespace

void bind_copy(py::module_& m) {
    define(
        m, "copy_rows",
        [](int64_t rows, int64_t width, Address out, int64_t out_pitch, Address x, int64_t x_pitch, bool accumulate) {
            return BoundLaunch{copy_rows({at<float>(out), at<float>(x), rows, width, out_pitch, x_pitch, accumulate})};
        },
        {arg("rows"), arg("width"), kw_only(), arg("out"), arg("out_pitch"), arg("x"), arg("x_pitch"),
         arg("accumulate") = false});
    define(m, "copy_bytes",
           [](int64_t rows, int64_t width, Address out, int64_t out_pitch, Address x, int64_t x_pitch) {
               return BoundLaunch{copy_bytes({at<char>(out), at<char>(x), rows, width, out_pitch, x_pitch})};
           },
           {arg("rows"), arg("width"), kw_only(), arg("out"), arg("out_pitch"), arg("x"), arg("x_pitch")});
    define(m, "transpose",
           [](int64_t n, int64_t rows, int64_t columns, Address out, Address x, bool accumulate) {
               return BoundLaunch{transpose(n, rows, columns, at<float>(out), at<float>(x), accumulate)};
           },
           {arg("n"), arg("rows"), arg("columns"), kw_only(), arg("out"), arg("x"), arg("accumulate") = false});
    define(m, "copy_block",
           [](const std::vector<int64_t>& shape, Address out, const std::vector<int64_t>& out_strides, Address x,
              const std::vector<int64_t>& x_strides, bool accumulate) {
               return BoundLaunch{copy_block(at<float>(out), at<float>(x), shape, out_strides, x_strides, accumulate)};
           },
           {arg("shape"), kw_only(), arg("out"), arg("out_strides"), arg("x"), arg("x_strides"),
            arg("accumulate") = false});
    bind_interp(m);
    bind_half(m);
}

}  // namespace layermem::cpu
