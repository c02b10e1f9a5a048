// Losses and outputs of grid detectors.
#include "cpu/bindings/define.h"
#include "cpu/kernels/grid_detections.h"
#include "cpu/kernels/grid_loss.h"
#include "cpu/kernels/region_loss.h"

namespace py = pybind11;

namespace layermem::cpu {
namespace {

void bind_region_loss(py::module_& m) {
    define_class<RegionProblem>(
        m, "RegionProblem",
        [](int64_t items, int64_t side, int64_t classes, int64_t rows, uint64_t warm_up, std::vector<float> anchors,
           float object_scale, float noobject_scale, float class_scale, float coord_scale, float threshold,
           bool rescore, bool bias_match) {
            return RegionProblem{items,        side,           classes,     rows,        warm_up,   std::move(anchors),
                                 object_scale, noobject_scale, class_scale, coord_scale, threshold, rescore,
                                 bias_match};
        },
        {kw_only(), arg("items"), arg("side"), arg("classes"), arg("rows"), arg("warm_up"), arg("anchors"),
         arg("object_scale"), arg("noobject_scale"), arg("class_scale"), arg("coord_scale"), arg("threshold"),
         arg("rescore"), arg("bias_match")});
    define(m, "region_loss_workspace_bytes", &region_loss_workspace_bytes, {arg("problem")});
    define(m, "region_loss_forward",
           [](const RegionProblem& problem, Address loss, Address x, Address truth, Address workspace) {
               return BoundStepLaunch{region_loss_forward(problem, at<float>(loss), at<const float>(x),
                                                          at<const float>(truth), at<void>(workspace))};
           },
           {arg("problem"), kw_only(), arg("loss"), arg("x"), arg("truth"), arg("workspace")});
    define(m, "region_loss_backward",
           [](const RegionProblem& problem, Address dx, Address dloss, Address x, Address truth, bool accumulate,
              Address workspace) {
               return BoundStepLaunch{region_loss_backward(problem, at<float>(dx), at<const float>(dloss),
                                                           at<const float>(x), at<const float>(truth), accumulate,
                                                           at<void>(workspace))};
           },
           {arg("problem"), kw_only(), arg("dx"), arg("dloss"), arg("x"), arg("truth"), arg("accumulate") = false,
            arg("workspace")});
}

void bind_grid_loss(py::module_& m) {
    define_class<GridLossProblem>(
        m, "GridLossProblem",
        [](int64_t items, int64_t side, int64_t classes, int64_t rows, std::vector<float> anchors,
           std::vector<int64_t> mask, float divisor, float object_scale, float class_scale, float coord_scale,
           float threshold, bool logistic) {
            return GridLossProblem{items,   side,         classes,     rows,        std::move(anchors), std::move(mask),
                                   divisor, object_scale, class_scale, coord_scale, threshold,          logistic};
        },
        {kw_only(), arg("items"), arg("side"), arg("classes"), arg("rows"), arg("anchors"), arg("mask"), arg("divisor"),
         arg("object_scale"), arg("class_scale"), arg("coord_scale"), arg("threshold"), arg("logistic")});
    define(m, "grid_loss_workspace_bytes", &grid_loss_workspace_bytes, {arg("problem")});
    define(m, "grid_loss_forward",
           [](const GridLossProblem& problem, Address loss, Address x, Address truth, Address workspace) {
               return BoundLaunch{grid_loss_forward(problem, at<float>(loss), at<const float>(x),
                                                    at<const float>(truth), at<void>(workspace))};
           },
           {arg("problem"), kw_only(), arg("loss"), arg("x"), arg("truth"), arg("workspace")});
    define(m, "grid_loss_backward",
           [](const GridLossProblem& problem, Address dx, Address dloss, Address x, Address truth, bool accumulate,
              Address workspace) {
               return BoundLaunch{grid_loss_backward(problem, at<float>(dx), at<const float>(dloss), at<const float>(x),
                                                     at<const float>(truth), accumulate, at<void>(workspace))};
           },
           {arg("problem"), kw_only(), arg("dx"), arg("dloss"), arg("x"), arg("truth"), arg("accumulate") = false,
            arg("workspace")});
}

void bind_grid_detections(py::module_& m) {
    define_class<GridProblem>(
        m, "GridProblem",
        [](int64_t items, int64_t classes, std::vector<int64_t> sides, std::vector<std::vector<float>> anchors,
           std::vector<float> divisors, bool softmax, float least_score, float threshold) {
            return GridProblem{items,   classes,     std::move(sides), std::move(anchors), std::move(divisors),
                               softmax, least_score, threshold};
        },
        {kw_only(), arg("items"), arg("classes"), arg("sides"), arg("anchors"), arg("divisors"), arg("softmax"),
         arg("least_score"), arg("threshold")});
    define(m, "grid_detections_workspace_bytes", &grid_detections_workspace_bytes, {arg("problem")});
    define(
        m, "grid_detections",
        [](const GridProblem& problem, Address y, const std::vector<Address>& xs, Address workspace) {
            return BoundLaunch{grid_detections(problem, at<float>(y), at_each<const float>(xs), at<void>(workspace))};
        },
        {arg("problem"), kw_only(), arg("y"), arg("xs"), arg("workspace")});
}

}  // namespace

void bind_yolo(py::module_& m) {
    bind_region_loss(m);
    bind_grid_loss(m);
    bind_grid_detections(m);
}

}  // namespace layermem::cpu
