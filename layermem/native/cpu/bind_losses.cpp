#include "bind.h"
#include "bind_labels.h"
#include "losses.h"

namespace py = pybind11;

namespace layermem::cpu {
namespace {
using py::arg;

PairArgs pair(Address da, Address db, Address a, Address b, bool accumulate_da, bool accumulate_db) {
    PairArgs g{};
    g.size = 1, g.a = at<float>(a), g.b = at<float>(b), g.out_a = at<float>(da), g.out_b = at<float>(db);
    g.accumulate_a = accumulate_da, g.accumulate_b = accumulate_db;
    return g;
}

PairArgs alike(PairArgs g, int64_t size, Address same, float margin, bool legacy) {
    g.size = size, g.same = at<float>(same), g.margin = margin, g.legacy = legacy;
    return g;
}

void bind_sigmoid(py::module_& m) {
    m.def("sigmoid_loss_workspace", &sigmoid_loss_workspace, arg("count"));
    m.def(
        "sigmoid_loss_forward",
        [](int64_t count, Address loss, Address x, Address target, Label ignore_label, double divisor,
           Address scratch) {
            const TargetArgs g{nullptr, at<float>(x), labels(target, ignore_label, divisor), 0, false};
            return Bound{sigmoid_loss_forward(count, at<float>(loss), g, at<void>(scratch))};
        },
        arg("count"), py::kw_only(), arg("loss"), arg("x"), arg("target"), arg("ignore_label") = py::none(),
        arg("divisor") = 0, arg("scratch"));
    m.def(
        "sigmoid_loss_backward",
        [](int64_t count, Address dx, Address x, Address target, Address dloss, Label ignore_label, double divisor,
           bool accumulate, Address scratch) {
            const TargetArgs g{at<float>(dx), at<float>(x), labels(target, ignore_label, divisor), 0, accumulate};
            return Bound{sigmoid_loss_backward(count, g, at<float>(dloss), at<void>(scratch))};
        },
        arg("count"), py::kw_only(), arg("dx"), arg("x"), arg("target"), arg("dloss"), arg("ignore_label") = py::none(),
        arg("divisor") = 0, arg("accumulate") = false, arg("scratch"));
}

void bind_pairs(py::module_& m) {
    m.def("euclidean_loss_workspace", &euclidean_loss_workspace, arg("count"));
    m.def(
        "euclidean_loss_forward",
        [](int64_t count, Address loss, Address a, Address b, double divisor, Address scratch) {
            return Bound{euclidean_loss_forward(count, at<float>(loss), pair(0, 0, a, b, false, false), divisor,
                                                at<void>(scratch))};
        },
        arg("count"), py::kw_only(), arg("loss"), arg("a"), arg("b"), arg("divisor"), arg("scratch"));
    m.def(
        "euclidean_loss_backward",
        [](int64_t count, Address da, Address db, Address a, Address b, Address dloss, double divisor,
           bool accumulate_da, bool accumulate_db) {
            const PairArgs g = pair(da, db, a, b, accumulate_da, accumulate_db);
            return Bound{euclidean_loss_backward(count, g, at<float>(dloss), divisor)};
        },
        arg("count"), py::kw_only(), arg("da") = 0, arg("db") = 0, arg("a"), arg("b"), arg("dloss"), arg("divisor"),
        arg("accumulate_da") = false, arg("accumulate_db") = false);
    m.def("contrastive_loss_workspace", &contrastive_loss_workspace, arg("items"), arg("size"));
    m.def(
        "contrastive_loss_forward",
        [](int64_t items, int64_t size, Address loss, Address a, Address b, Address same, float margin, bool legacy,
           double divisor, Address scratch) {
            const PairArgs g = alike(pair(0, 0, a, b, false, false), size, same, margin, legacy);
            return Bound{contrastive_loss_forward(items, at<float>(loss), g, divisor, at<void>(scratch))};
        },
        arg("items"), arg("size"), py::kw_only(), arg("loss"), arg("a"), arg("b"), arg("same"), arg("margin"),
        arg("legacy") = false, arg("divisor"), arg("scratch"));
    m.def(
        "contrastive_loss_backward",
        [](int64_t items, int64_t size, Address da, Address db, Address a, Address b, Address same, Address dloss,
           float margin, bool legacy, double divisor, bool accumulate_da, bool accumulate_db) {
            const PairArgs g = alike(pair(da, db, a, b, accumulate_da, accumulate_db), size, same, margin, legacy);
            return Bound{contrastive_loss_backward(items, g, at<float>(dloss), divisor)};
        },
        arg("items"), arg("size"), py::kw_only(), arg("da") = 0, arg("db") = 0, arg("a"), arg("b"), arg("same"),
        arg("dloss"), arg("margin"), arg("legacy") = false, arg("divisor"), arg("accumulate_da") = false,
        arg("accumulate_db") = false);
}

// NAME_forward and NAME_backward of a loss with a label for each item
template <class Forward, class Backward>
void bind_items(py::module_& m, const std::string& name, Forward forward, Backward backward) {
    m.def((name + "_forward").c_str(),
          [=](int64_t items, int64_t classes, int64_t channels, Address loss, Address x, Address label, bool squared,
              Address scratch) {
              const ItemArgs g{classes, channels, nullptr, at<float>(x), at<float>(label), 0, squared, false};
              return Bound{forward(items, at<float>(loss), g, at<void>(scratch))};
          },
          arg("items"), arg("classes"), arg("channels"), py::kw_only(), arg("loss"), arg("x"), arg("label"),
          arg("squared") = false, arg("scratch"));
    m.def((name + "_backward").c_str(),
          [=](int64_t items, int64_t classes, int64_t channels, Address dx, Address x, Address label, Address dloss,
              bool squared, bool accumulate) {
              const ItemArgs g{classes,          channels, at<float>(dx), at<float>(x),
                               at<float>(label), 0,        squared,       accumulate};
              return Bound{backward(items, g, at<float>(dloss))};
          },
          arg("items"), arg("classes"), arg("channels"), py::kw_only(), arg("dx"), arg("x"), arg("label"), arg("dloss"),
          arg("squared") = false, arg("accumulate") = false);
}
}  // namespace

void bind_losses(py::module_& m) {
    bind_sigmoid(m);
    bind_pairs(m);
    m.def("item_loss_workspace", &item_loss_workspace, arg("items"), arg("classes"));
    bind_items(m, "hinge_loss", &hinge_loss_forward, &hinge_loss_backward);
    bind_items(m, "logistic_loss", &logistic_loss_forward, &logistic_loss_backward);
}

}  // namespace layermem::cpu
