// Losses against targets, pairs and labels.
#include <string>

#include "cpu/bindings/bind_labels.h"
#include "cpu/bindings/define.h"
#include "cpu/kernels/loss.h"

namespace py = pybind11;

namespace layermem::cpu {
namespace {
PairArgs pair_args(Address da, Address db, Address a, Address b, bool accumulate_da, bool accumulate_db) {
    PairArgs args{};
    args.size = 1;
    args.a = at<float>(a);
    args.b = at<float>(b);
    args.da = at<float>(da);
    args.db = at<float>(db);
    args.accumulate_da = accumulate_da;
    args.accumulate_db = accumulate_db;
    return args;
}

PairArgs contrastive_args(PairArgs args, int64_t size, Address same, float margin, bool legacy) {
    args.size = size;
    args.same = at<float>(same);
    args.margin = margin;
    args.legacy = legacy;
    return args;
}

void bind_sigmoid(py::module_& m) {
    define(m, "sigmoid_loss_workspace_bytes", &sigmoid_loss_workspace_bytes, {arg("count")});
    define(m, "sigmoid_loss_carry_bytes", &sigmoid_loss_carry_bytes, {arg("count")});
    define(m, "sigmoid_loss_forward",
           [](int64_t count, Address loss, Address x, Address target, const IgnoreLabel& ignore_label, double divisor,
              Address workspace, int64_t first, int64_t of, Address carry) {
               const TargetArgs args{nullptr, at<float>(x), labels(target, ignore_label, divisor), 0, false};
               return BoundLaunch{sigmoid_loss_forward(row_slice(count, first, of), at<float>(loss), args,
                                                       at<void>(workspace), at<void>(carry))};
           },
           {arg("count"), kw_only(), arg("loss"), arg("x"), arg("target"), arg("ignore_label") = std::nullopt,
            arg("divisor") = 0, arg("workspace"), arg("first") = 0, arg("of") = 0, arg("carry") = 0});
    define(
        m, "sigmoid_loss_backward",
        [](int64_t count, Address dx, Address x, Address target, Address dloss, const IgnoreLabel& ignore_label,
           double divisor, bool accumulate, Address workspace, Address counted, int64_t of) {
            const TargetArgs args{at<float>(dx), at<float>(x), labels(target, ignore_label, divisor), 0, accumulate};
            return BoundLaunch{sigmoid_loss_backward(count, args, at<float>(dloss), at<void>(workspace),
                                                     counted_labels(target, count, counted, of))};
        },
        {arg("count"), kw_only(), arg("dx"), arg("x"), arg("target"), arg("dloss"), arg("ignore_label") = std::nullopt,
         arg("divisor") = 0, arg("accumulate") = false, arg("workspace"), arg("counted") = 0, arg("of") = 0});
}

void bind_smooth_l1(py::module_& m) {
    define(m, "smooth_l1_loss_carry_bytes", &smooth_l1_loss_carry_bytes, {arg("count")});
    define(m, "smooth_l1_loss_forward",
           [](int64_t count, Address loss, Address a, Address b, Address inside, Address outside, float sigma,
              double divisor, Address workspace, int64_t first, int64_t of, Address carry) {
               const SmoothL1Args args{
                   nullptr,       nullptr, at<float>(a), at<float>(b), at<float>(inside), at<float>(outside),
                   sigma * sigma, 0,       false,        false};
               return BoundLaunch{smooth_l1_loss_forward(row_slice(count, first, of), at<float>(loss), args, divisor,
                                                         at<void>(workspace), at<void>(carry))};
           },
           {arg("count"), kw_only(), arg("loss"), arg("a"), arg("b"), arg("inside") = 0, arg("outside") = 0,
            arg("sigma"), arg("divisor"), arg("workspace"), arg("first") = 0, arg("of") = 0, arg("carry") = 0});
    define(m, "smooth_l1_loss_backward",
           [](int64_t count, Address da, Address db, Address a, Address b, Address inside, Address outside,
              Address dloss, float sigma, double divisor, bool accumulate_da, bool accumulate_db) {
               const SmoothL1Args args{at<float>(da),     at<float>(db),      at<float>(a),  at<float>(b),
                                       at<float>(inside), at<float>(outside), sigma * sigma, 0,
                                       accumulate_da,     accumulate_db};
               return BoundLaunch{smooth_l1_loss_backward(count, args, at<float>(dloss), divisor)};
           },
           {arg("count"), kw_only(), arg("da") = 0, arg("db") = 0, arg("a"), arg("b"), arg("inside") = 0,
            arg("outside") = 0, arg("dloss"), arg("sigma"), arg("divisor"), arg("accumulate_da") = false,
            arg("accumulate_db") = false});
}

void bind_pairs(py::module_& m) {
    define(m, "euclidean_loss_workspace_bytes", &euclidean_loss_workspace_bytes, {arg("count")});
    define(m, "euclidean_loss_carry_bytes", &euclidean_loss_carry_bytes, {arg("count")});
    define(m, "euclidean_loss_forward",
           [](int64_t count, Address loss, Address a, Address b, double divisor, Address workspace, int64_t first,
              int64_t of, Address carry) {
               return BoundLaunch{euclidean_loss_forward(row_slice(count, first, of), at<float>(loss),
                                                         pair_args(0, 0, a, b, false, false), divisor,
                                                         at<void>(workspace), at<void>(carry))};
           },
           {arg("count"), kw_only(), arg("loss"), arg("a"), arg("b"), arg("divisor"), arg("workspace"),
            arg("first") = 0, arg("of") = 0, arg("carry") = 0});
    define(m, "euclidean_loss_backward",
           [](int64_t count, Address da, Address db, Address a, Address b, Address dloss, double divisor,
              bool accumulate_da, bool accumulate_db) {
               const PairArgs args = pair_args(da, db, a, b, accumulate_da, accumulate_db);
               return BoundLaunch{euclidean_loss_backward(count, args, at<float>(dloss), divisor)};
           },
           {arg("count"), kw_only(), arg("da") = 0, arg("db") = 0, arg("a"), arg("b"), arg("dloss"), arg("divisor"),
            arg("accumulate_da") = false, arg("accumulate_db") = false});
    define(m, "contrastive_loss_workspace_bytes", &contrastive_loss_workspace_bytes, {arg("items"), arg("size")});
    define(m, "contrastive_loss_carry_bytes", &contrastive_loss_carry_bytes, {arg("items"), arg("size")});
    define(
        m, "contrastive_loss_forward",
        [](int64_t items, int64_t size, Address loss, Address a, Address b, Address same, float margin, bool legacy,
           double divisor, Address workspace, int64_t first, int64_t of, Address carry) {
            const PairArgs args = contrastive_args(pair_args(0, 0, a, b, false, false), size, same, margin, legacy);
            return BoundLaunch{contrastive_loss_forward(row_slice(items, first, of), at<float>(loss), args, divisor,
                                                        at<void>(workspace), at<void>(carry))};
        },
        {arg("items"), arg("size"), kw_only(), arg("loss"), arg("a"), arg("b"), arg("same"), arg("margin"),
         arg("legacy") = false, arg("divisor"), arg("workspace"), arg("first") = 0, arg("of") = 0, arg("carry") = 0});
    define(m, "contrastive_loss_backward",
           [](int64_t items, int64_t size, Address da, Address db, Address a, Address b, Address same, Address dloss,
              float margin, bool legacy, double divisor, bool accumulate_da, bool accumulate_db) {
               const PairArgs args =
                   contrastive_args(pair_args(da, db, a, b, accumulate_da, accumulate_db), size, same, margin, legacy);
               return BoundLaunch{contrastive_loss_backward(items, args, at<float>(dloss), divisor)};
           },
           {arg("items"), arg("size"), kw_only(), arg("da") = 0, arg("db") = 0, arg("a"), arg("b"), arg("same"),
            arg("dloss"), arg("margin"), arg("legacy") = false, arg("divisor"), arg("accumulate_da") = false,
            arg("accumulate_db") = false});
}

// NAME_forward and NAME_backward of a loss with a label for each item
template <auto forward, auto backward>
void bind_items(py::module_& m, const std::string& name) {
    define(m, (name + "_forward").c_str(),
           [](int64_t items, int64_t classes, int64_t channels, Address loss, Address x, Address label, bool squared,
              Address workspace, int64_t first, int64_t of, Address carry) {
               const ItemArgs args{classes, channels, nullptr, at<float>(x), at<float>(label), 0, squared, false};
               return BoundLaunch{
                   forward(row_slice(items, first, of), at<float>(loss), args, at<void>(workspace), at<void>(carry))};
           },
           {arg("items"), arg("classes"), arg("channels"), kw_only(), arg("loss"), arg("x"), arg("label"),
            arg("squared") = false, arg("workspace"), arg("first") = 0, arg("of") = 0, arg("carry") = 0});
    define(m, (name + "_backward").c_str(),
           [](int64_t items, int64_t classes, int64_t channels, Address dx, Address x, Address label, Address dloss,
              bool squared, bool accumulate, int64_t of) {
               const ItemArgs args{classes,          channels, at<float>(dx), at<float>(x),
                                   at<float>(label), 0,        squared,       accumulate};
               return BoundLaunch{backward(row_slice(items, 0, of), args, at<float>(dloss))};
           },
           {arg("items"), arg("classes"), arg("channels"), kw_only(), arg("dx"), arg("x"), arg("label"), arg("dloss"),
            arg("squared") = false, arg("accumulate") = false, arg("of") = 0});
}
}  // namespace

void bind_loss(py::module_& m) {
    bind_sigmoid(m);
    bind_pairs(m);
    bind_smooth_l1(m);
    define(m, "item_loss_workspace_bytes", &item_loss_workspace_bytes, {arg("items"), arg("classes")});
    define(m, "item_loss_carry_bytes", &item_loss_carry_bytes, {arg("items"), arg("classes")});
    bind_items<&hinge_loss_forward, &hinge_loss_backward>(m, "hinge_loss");
    bind_items<&logistic_loss_forward, &logistic_loss_backward>(m, "logistic_loss");
}

}  // namespace layermem::cpu
