// Channels, Scale, Bias, BatchNorm alone and fused, and LRN.
#include "cpu/bindings/define.h"
#include "cpu/kernels/channel_ops.h"
#include "cpu/kernels/lrn.h"
#include "cpu/kernels/normalization.h"
#include "cpu/kernels/scale.h"
#include "cpu/kernels/stored.h"

namespace py = pybind11;

namespace layermem::cpu {
namespace {
void bind_scale(py::module_& m) {
    define(m, "scale_forward",
           [](const Channels& shape, Address y, Address x, Address factor, Address bias) {
               return BoundLaunch{scale_forward(shape, at<float>(y), at<float>(x), at<float>(factor), at<float>(bias))};
           },
           {arg("shape"), kw_only(), arg("y"), arg("x"), arg("factor"), arg("bias") = 0});
    define(m, "bias_forward",
           [](const Channels& shape, Address y, Address x, Address bias) {
               return BoundLaunch{bias_forward(shape, at<float>(y), at<float>(x), at<float>(bias))};
           },
           {arg("shape"), kw_only(), arg("y"), arg("x"), arg("bias")});
    define(m, "scale_backward_workspace_bytes", &scale_backward_workspace_bytes, {arg("shape")});
    define(m, "scale_backward",
           [](const Channels& shape, Address dx, Address dfactor, Address dbias, Address x, Address dy, Address factor,
              bool accumulate_dx, bool accumulate_dfactor, bool accumulate_dbias, Address workspace) {
               const ScaleBackward args{at<float>(dx), at<float>(dfactor), at<float>(dbias),
                                        at<float>(x),  at<float>(dy),      at<float>(factor),
                                        accumulate_dx, accumulate_dfactor, accumulate_dbias};
               return BoundLaunch{scale_backward(shape, args, at<void>(workspace))};
           },
           {arg("shape"), kw_only(), arg("dx") = 0, arg("dfactor") = 0, arg("dbias") = 0, arg("x") = 0, arg("dy"),
            arg("factor") = 0, arg("accumulate_dx") = false, arg("accumulate_dfactor") = false,
            arg("accumulate_dbias") = false, arg("workspace") = 0});
}

SumKind sum_kind(const std::string& name) {
    if (name == "plain") return SumKind::plain;
    if (name == "product") return SumKind::product;
    if (name == "prelu") return SumKind::prelu;
    throw std::invalid_argument("channel_sums: unknown kind '" + name + "'");
}

void bind_sums(py::module_& m) {
    define(m, "channel_sums_carry_bytes", &channel_sums_carry_bytes, {arg("shape"), arg("each")});
    define(m, "channel_sums",
           [](const Channels& shape, const std::string& kind, Address out, Address a, Address x, bool accumulate,
              int64_t first, int64_t of, Address carry) {
               ChannelSum args{};
               args.shape = shape;
               args.kind = sum_kind(kind);
               args.a = at<float>(a);
               args.x = at<float>(x);
               return BoundLaunch{
                   channel_sums(args, row_slice(shape.outer, first, of), at<float>(out), accumulate, at<void>(carry))};
           },
           {arg("shape"), arg("kind"), kw_only(), arg("out") = 0, arg("a"), arg("x") = 0, arg("accumulate") = false,
            arg("first") = 0, arg("of") = 0, arg("carry")});
}

void bind_batch_norm(py::module_& m) {
    for (const auto& [name, bytes] :
         {std::pair{"batch_norm_forward_workspace_bytes", &batch_norm_forward_workspace_bytes},
          std::pair{"batch_norm_global_workspace_bytes", &batch_norm_global_workspace_bytes},
          std::pair{"batch_norm_backward_workspace_bytes", &batch_norm_backward_workspace_bytes}})
        define(m, name, bytes, {arg("shape")});
    define(m, "batch_norm_forward",
           [](const Channels& shape, Address y, Address x, Address mean, Address inv_std, Address w0, Address w1,
              Address w2, float fraction, float eps, Address workspace, const std::string& storage) {
               const MovingAverages averages{at<float>(w0), at<float>(w1), at<float>(w2), fraction};
               return BoundLaunch{batch_norm_forward(shape, at<float>(y), at<float>(x), at<float>(mean),
                                                     at<float>(inv_std), averages, eps, at<void>(workspace),
                                                     storage_named(storage))};
           },
           {arg("shape"), kw_only(), arg("y"), arg("x"), arg("mean"), arg("inv_std"), arg("w0") = 0, arg("w1") = 0,
            arg("w2") = 0, arg("fraction") = 0, arg("eps"), arg("workspace"), arg("storage") = ""});
    define(m, "batch_norm_recompute",
           [](const Channels& shape, Address y, Address x, Address mean, Address inv_std, const std::string& storage) {
               return BoundLaunch{batch_norm_recompute(shape, at<float>(y), at<float>(x), at<float>(mean),
                                                       at<float>(inv_std), storage_named(storage))};
           },
           {arg("shape"), kw_only(), arg("y"), arg("x"), arg("mean"), arg("inv_std"), arg("storage") = ""});
    define(m, "batch_norm_backward",
           [](const Channels& shape, Address dx, Address x, Address dy, Address mean, Address inv_std, bool accumulate,
              Address workspace, const std::string& storage) {
               return BoundLaunch{batch_norm_backward(shape, at<float>(dx), at<float>(x), at<float>(dy),
                                                      at<float>(mean), at<float>(inv_std), accumulate,
                                                      at<void>(workspace), storage_named(storage))};
           },
           {arg("shape"), kw_only(), arg("dx"), arg("x"), arg("dy"), arg("mean"), arg("inv_std"),
            arg("accumulate") = false, arg("workspace"), arg("storage") = ""});
    define(m, "batch_norm_global_forward",
           [](const Channels& shape, Address y, Address x, Address w0, Address w1, Address w2, float eps,
              Address workspace, const std::string& storage) {
               const MovingAverages averages{at<float>(w0), at<float>(w1), at<float>(w2), 0};
               return BoundLaunch{batch_norm_global_forward(shape, at<float>(y), at<float>(x), averages, eps,
                                                            at<void>(workspace), storage_named(storage))};
           },
           {arg("shape"), kw_only(), arg("y"), arg("x"), arg("w0"), arg("w1"), arg("w2"), arg("eps"), arg("workspace"),
            arg("storage") = ""});
    define(m, "batch_norm_global_backward",
           [](const Channels& shape, Address dx, Address dy, Address w1, Address w2, float eps, bool accumulate,
              Address workspace, const std::string& storage) {
               const MovingAverages averages{nullptr, at<float>(w1), at<float>(w2), 0};
               return BoundLaunch{batch_norm_global_backward(shape, at<float>(dx), at<float>(dy), averages, eps,
                                                             accumulate, at<void>(workspace), storage_named(storage))};
           },
           {arg("shape"), kw_only(), arg("dx"), arg("dy"), arg("w1"), arg("w2"), arg("eps"), arg("accumulate") = false,
            arg("workspace"), arg("storage") = ""});
}

void bind_fused(py::module_& m) {
    define(m, "batch_norm_fused_workspace_bytes", &batch_norm_fused_workspace_bytes, {arg("shape")});
    define(m, "batch_norm_fused_forward",
           [](const Channels& shape, Address y, Address x, Address mean, Address inv_std, Address factor, Address bias,
              bool relu, Address residual, Address mask, float largest_zero, Address w0, Address w1, Address w2,
              float fraction, float eps, bool recompute, Address workspace, const std::string& storage) {
               const FusedNorm norm{shape,
                                    at<float>(x),
                                    at<float>(factor),
                                    at<float>(bias),
                                    at<float>(mean),
                                    at<float>(inv_std),
                                    relu,
                                    at<float>(residual),
                                    {at<uint8_t>(mask), largest_zero},
                                    storage_named(storage)};
               const MovingAverages averages{at<float>(w0), at<float>(w1), at<float>(w2), fraction};
               return BoundLaunch{
                   batch_norm_fused_forward(norm, at<float>(y), averages, eps, recompute, at<void>(workspace))};
           },
           {arg("shape"),     kw_only(),
            arg("y"),         arg("x"),
            arg("mean"),      arg("inv_std"),
            arg("factor"),    arg("bias"),
            arg("relu"),      arg("residual") = 0,
            arg("mask") = 0,  arg("largest_zero") = 0,
            arg("w0") = 0,    arg("w1") = 0,
            arg("w2") = 0,    arg("fraction") = 0,
            arg("eps") = 0,   arg("recompute") = false,
            arg("workspace"), arg("storage") = ""});
    define(
        m, "batch_norm_fused_global_forward",
        [](const Channels& shape, Address y, Address x, Address w0, Address w1, Address w2, Address factor,
           Address bias, bool relu, float eps, Address workspace, const std::string& storage) {
            const FusedNorm norm{shape,   at<float>(x), at<float>(factor),     at<float>(bias), nullptr, nullptr, relu,
                                 nullptr, {},           storage_named(storage)};
            const MovingAverages averages{at<float>(w0), at<float>(w1), at<float>(w2), 0};
            return BoundLaunch{batch_norm_fused_global_forward(norm, at<float>(y), averages, eps, at<void>(workspace))};
        },
        {arg("shape"), kw_only(), arg("y"), arg("x"), arg("w0"), arg("w1"), arg("w2"), arg("factor"), arg("bias"),
         arg("relu"), arg("eps"), arg("workspace"), arg("storage") = ""});
    define(
        m, "batch_norm_fused_backward",
        [](const Channels& shape, Address dx, Address dfactor, Address dbias, Address x, Address dy, Address mean,
           Address inv_std, Address factor, Address bias, bool relu, float largest_zero, bool accumulate_dx,
           bool accumulate_dfactor, bool accumulate_dbias, Address workspace, const std::string& storage) {
            const FusedNorm norm{shape,
                                 at<float>(x),
                                 at<float>(factor),
                                 at<float>(bias),
                                 at<float>(mean),
                                 at<float>(inv_std),
                                 relu,
                                 nullptr,
                                 {nullptr, largest_zero},
                                 storage_named(storage)};
            const FusedNormGradients gradients{at<float>(dx), at<float>(dfactor), at<float>(dbias),
                                               accumulate_dx, accumulate_dfactor, accumulate_dbias};
            return BoundLaunch{batch_norm_fused_backward(norm, gradients, at<float>(dy), at<void>(workspace))};
        },
        {arg("shape"), kw_only(), arg("dx") = 0, arg("dfactor") = 0, arg("dbias") = 0, arg("x"), arg("dy"), arg("mean"),
         arg("inv_std"), arg("factor"), arg("bias"), arg("relu"), arg("largest_zero") = 0, arg("accumulate_dx") = false,
         arg("accumulate_dfactor") = false, arg("accumulate_dbias") = false, arg("workspace"), arg("storage") = ""});
}

void bind_two_passes(py::module_& m) {
    define(m, "moments_carry_bytes", &moments_carry_bytes, {arg("shape"), arg("each")});
    define(m, "move_averages",
           [](int64_t channels, int64_t rows, Address w0, Address w1, Address w2, Address x0, Address x1, Address x2,
              float fraction) {
               const MovingAverages averages{at<float>(w0), at<float>(w1), at<float>(w2), fraction};
               return BoundLaunch{move_averages(channels, rows, averages, at<const float>(x0), at<const float>(x1),
                                                at<const float>(x2))};
           },
           {arg("channels"), arg("rows"), kw_only(), arg("w0"), arg("w1"), arg("w2") = 0, arg("x0"), arg("x1"),
            arg("x2") = 0, arg("fraction")});
    define(m, "batch_norm_statistics",
           [](const Channels& shape, Address x, Address mean, Address inv_std, Address w0, Address w1, Address w2,
              float fraction, float eps, int64_t first, int64_t of, Address carry) {
               const MovingAverages averages{at<float>(w0), at<float>(w1), at<float>(w2), fraction};
               return BoundLaunch{batch_norm_statistics(shape, row_slice(shape.outer, first, of), at<float>(x),
                                                        at<float>(mean), at<float>(inv_std), averages, eps,
                                                        at<void>(carry))};
           },
           {arg("shape"), kw_only(), arg("x"), arg("mean") = 0, arg("inv_std") = 0, arg("w0") = 0, arg("w1") = 0,
            arg("w2") = 0, arg("fraction") = 0, arg("eps"), arg("first") = 0, arg("of") = 0, arg("carry")});
    define(m, "batch_norm_gradient_sums",
           [](const Channels& shape, Address sums, Address x, Address dy, Address mean, Address inv_std, int64_t first,
              int64_t of, Address carry) {
               return BoundLaunch{batch_norm_gradient_sums(shape, row_slice(shape.outer, first, of), at<float>(sums),
                                                           at<float>(x), at<float>(dy), at<float>(mean),
                                                           at<float>(inv_std), at<void>(carry))};
           },
           {arg("shape"), kw_only(), arg("sums") = 0, arg("x"), arg("dy"), arg("mean"), arg("inv_std"),
            arg("first") = 0, arg("of") = 0, arg("carry")});
    define(m, "batch_norm_fused_gradient_sums",
           [](const Channels& shape, Address sums, Address dfactor, Address dbias, Address x, Address dy, Address mean,
              Address inv_std, Address factor, Address bias, bool relu, float largest_zero, bool accumulate_dfactor,
              bool accumulate_dbias, int64_t first, int64_t of, Address carry, Address workspace) {
               const FusedNorm norm{
                   shape, at<float>(x), at<float>(factor),      at<float>(bias), at<float>(mean), at<float>(inv_std),
                   relu,  nullptr,      {nullptr, largest_zero}};
               const FusedNormGradients gradients{nullptr, at<float>(dfactor), at<float>(dbias),
                                                  false,   accumulate_dfactor, accumulate_dbias};
               return BoundLaunch{batch_norm_fused_gradient_sums(norm, row_slice(shape.outer, first, of),
                                                                 at<float>(sums), gradients, at<float>(dy),
                                                                 at<void>(carry), at<void>(workspace))};
           },
           {arg("shape"), kw_only(), arg("sums") = 0, arg("dfactor") = 0, arg("dbias") = 0, arg("x"), arg("dy"),
            arg("mean"), arg("inv_std"), arg("factor"), arg("bias"), arg("relu"), arg("largest_zero") = 0,
            arg("accumulate_dfactor") = false, arg("accumulate_dbias") = false, arg("first") = 0, arg("of") = 0,
            arg("carry"), arg("workspace")});
    define(m, "batch_norm_input_gradient_workspace_bytes", &batch_norm_input_gradient_workspace_bytes, {arg("shape")});
    define(m, "batch_norm_input_gradient",
           [](const Channels& shape, Address dx, Address x, Address dy, Address mean, Address inv_std, Address sums,
              bool accumulate, int64_t first, int64_t of, Address workspace) {
               return BoundLaunch{batch_norm_input_gradient(
                   shape, row_slice(shape.outer, first, of), at<float>(dx), at<float>(x), at<float>(dy),
                   at<float>(mean), at<float>(inv_std), at<float>(sums), accumulate, at<void>(workspace))};
           },
           {arg("shape"), kw_only(), arg("dx"), arg("x"), arg("dy"), arg("mean"), arg("inv_std"), arg("sums"),
            arg("accumulate") = false, arg("first") = 0, arg("of") = 0, arg("workspace")});
    define(m, "batch_norm_fused_input_gradient",
           [](const Channels& shape, Address dx, Address x, Address dy, Address mean, Address inv_std, Address sums,
              Address factor, Address bias, bool relu, float largest_zero, bool accumulate, int64_t first, int64_t of,
              Address workspace) {
               const FusedNorm norm{
                   shape, at<float>(x), at<float>(factor),      at<float>(bias), at<float>(mean), at<float>(inv_std),
                   relu,  nullptr,      {nullptr, largest_zero}};
               return BoundLaunch{batch_norm_fused_input_gradient(norm, row_slice(shape.outer, first, of),
                                                                  at<float>(dx), at<float>(dy), at<float>(sums),
                                                                  accumulate, at<void>(workspace))};
           },
           {arg("shape"), kw_only(), arg("dx"), arg("x"), arg("dy"), arg("mean"), arg("inv_std"), arg("sums"),
            arg("factor"), arg("bias"), arg("relu"), arg("largest_zero") = 0, arg("accumulate") = false,
            arg("first") = 0, arg("of") = 0, arg("workspace")});
}

void bind_lrn(py::module_& m) {
    define(m, "lrn_workspace_bytes",
           [](int64_t n, int64_t h, int64_t w, int64_t c, int64_t size, bool across, bool backward) {
               return lrn_workspace_bytes(n, h, w, c, size, across, backward);
           },
           {kw_only(), arg("n"), arg("h"), arg("w"), arg("c"), arg("size"), arg("across"), arg("backward")});
    define(m, "lrn_forward",
           [](int64_t n, int64_t h, int64_t w, int64_t c, int64_t size, bool across, float alpha, float k, float beta,
              Address y, Address x, Address workspace) {
               return BoundLaunch{
                   lrn_forward({n, h, w, c, size, alpha, k, beta, at<float>(y), at<float>(x), nullptr, false}, across,
                               at<void>(workspace))};
           },
           {kw_only(), arg("n"), arg("h"), arg("w"), arg("c"), arg("size"), arg("across"), arg("alpha"), arg("k"),
            arg("beta"), arg("y"), arg("x"), arg("workspace")});
    define(m, "lrn_backward",
           [](int64_t n, int64_t h, int64_t w, int64_t c, int64_t size, bool across, float alpha, float k, float beta,
              Address dx, Address x, Address dy, bool accumulate, Address workspace) {
               const LrnArgs args{n,         h, w, c, size, alpha, k, beta, at<float>(dx), at<float>(x), at<float>(dy),
                                  accumulate};
               return BoundLaunch{lrn_backward(args, across, at<void>(workspace))};
           },
           {kw_only(), arg("n"), arg("h"), arg("w"), arg("c"), arg("size"), arg("across"), arg("alpha"), arg("k"),
            arg("beta"), arg("dx"), arg("x"), arg("dy"), arg("accumulate") = false, arg("workspace")});
}

}  // namespace

void bind_normalization(py::module_& m) {
    define_class<Channels>(
        m, "Channels",
        [](int64_t outer, int64_t channels, int64_t inner) {
            const Channels shape{outer, channels, inner};
            shape.check();
            return shape;
        },
        {arg("outer"), arg("channels"), arg("inner") = 1},
        "[outer][channels][inner]; a channels-last image has inner = 1");
    bind_scale(m);
    bind_sums(m);
    bind_batch_norm(m);
    bind_fused(m);
    bind_two_passes(m);
    bind_lrn(m);
}

}  // namespace layermem::cpu
