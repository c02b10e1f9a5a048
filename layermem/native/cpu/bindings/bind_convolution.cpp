#include "cpu/bindings/define.h"
#include "cpu/kernels/convolution.h"
#include "cpu/kernels/stored.h"
#include "cpu/kernels/winograd.h"

namespace py = pybind11;

namespace layermem::cpu {
namespace {

ConvProblem conv_problem(int64_t n, int64_t c, int64_t h, int64_t w, int64_t k, Pair kernel, Pair stride, Pair pad,
                         Pair dilation, int64_t groups, int64_t first, int64_t of) {
    const auto [kh, kw] = kernel;
    const auto [sh, sw] = stride;
    const auto [ph, pw] = pad;
    const auto [dh, dw] = dilation;
    const ConvProblem p{n, c, h, w, k, kh, kw, sh, sw, ph, pw, dh, dw, groups, first, of};
    p.check();
    return p;
}

void bind_kernels(py::module_& m) {
    define(m, "conv_is_stored", [](const ConvProblem& p) { return int64_t{conv_is_stored(p)}; }, {arg("problem")});
    define(m, "conv_fprop_workspace_bytes", &conv_fprop_workspace_bytes, {arg("problem")});
    define(m, "conv_dgrad_workspace_bytes", &conv_dgrad_workspace_bytes, {arg("problem")});
    define(m, "conv_wgrad_workspace_bytes", &conv_wgrad_workspace_bytes, {arg("problem")});
    define(m, "conv_wgrad_carry_bytes", &conv_wgrad_carry_bytes, {arg("problem")});
    define(m, "conv_winograd_tile", &winograd_tile, {arg("problem")});
    define(m, "conv_fprop",
           [](const ConvProblem& p, Address y, Address x, Address w, Address bias, bool accumulate, bool relu,
              Address mask, float largest_zero, Address workspace, const std::string& of_x, const std::string& of_y) {
               return BoundLaunch{conv_fprop(p, at<float>(y), at<float>(x), at<float>(w), at<float>(bias), accumulate,
                                             relu, {at<uint8_t>(mask), largest_zero}, at<void>(workspace),
                                             storage_named(of_x), storage_named(of_y))};
           },
           {arg("problem"), kw_only(), arg("y"), arg("x"), arg("w"), arg("bias") = 0, arg("accumulate") = false,
            arg("relu") = false, arg("mask") = 0, arg("largest_zero") = 0, arg("workspace") = 0, arg("of_x") = "",
            arg("of_y") = ""});
    define(m, "conv_dgrad",
           [](const ConvProblem& p, Address dx, Address dy, Address w, Address bias, bool accumulate, Address workspace,
              const std::string& storage) {
               return BoundLaunch{conv_dgrad(p, at<float>(dx), at<float>(dy), at<float>(w), at<float>(bias), accumulate,
                                             at<void>(workspace), storage_named(storage))};
           },
           {arg("problem"), kw_only(), arg("dx"), arg("dy"), arg("w"), arg("bias") = 0, arg("accumulate") = false,
            arg("workspace") = 0, arg("storage") = ""});
    define(m, "conv_wgrad",
           [](const ConvProblem& p, Address dw, Address x, Address dy, bool accumulate, Address workspace,
              Address carry, const std::string& of_x, const std::string& of_dy) {
               return BoundLaunch{conv_wgrad(p, at<float>(dw), at<float>(x), at<float>(dy), accumulate,
                                             at<void>(workspace), at<void>(carry), storage_named(of_x),
                                             storage_named(of_dy))};
           },
           {arg("problem"), kw_only(), arg("dw"), arg("x"), arg("dy"), arg("accumulate") = false, arg("workspace") = 0,
            arg("carry") = 0, arg("of_x") = "", arg("of_dy") = ""});
}

}  // namespace

void bind_convolution(py::module_& m) {
    define_class<ConvProblem>(
        m, "ConvProblem", &conv_problem,
        {kw_only(), arg("n"), arg("c"), arg("h"), arg("w"), arg("k"), arg("kernel"), arg("stride") = Pair(1, 1),
         arg("pad") = Pair(0, 0), arg("dilation") = Pair(1, 1), arg("groups") = 1, arg("first") = 0, arg("of") = 0},
        "geometry of a convolution: x [n][h][w][c], w [k][kh][kw][c/groups], y [n][ho][wo][k]; images first .. "
        "first + n - 1 `of` a batch (0: all there are)")
        .def_property_readonly("ho", &ConvProblem::ho)
        .def_property_readonly("wo", &ConvProblem::wo);
    bind_kernels(m);
}

}  // namespace layermem::cpu
