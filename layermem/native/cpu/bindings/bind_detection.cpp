// Losses and outputs of detectors.
#include "cpu/bindings/define.h"
#include "cpu/kernels/detection_evaluate.h"
#include "cpu/kernels/detection_output.h"
#include "cpu/kernels/multibox_loss.h"

namespace py = pybind11;

namespace layermem::cpu {
namespace {

MultiBoxData multibox_data(Address locations, Address scores, Address boxes, Address truth, Address match) {
    return {at<const float>(locations), at<const float>(scores), at<const float>(boxes), at<const float>(truth),
            at<int32_t>(match)};
}

void bind_multibox_loss(py::module_& m) {
    define_class<MultiBoxProblem>(
        m, "MultiBoxProblem",
        [](int64_t items, int64_t priors, int64_t classes, int64_t loc_classes, int64_t rows, int64_t background,
           int64_t code, bool in_target, int64_t mining, int64_t sample_size, int64_t top_k, float overlap_threshold,
           float neg_pos_ratio, float neg_overlap, float nms_threshold, float loc_weight, double normalizer,
           bool prior_matching, bool prior_suppression, bool difficult, bool agnostic, bool ignore_crossing,
           bool bp_inside, bool l2, bool logistic, bool loc, bool conf) {
            MultiBoxProblem p{};
            p.items = items;
            p.priors = priors;
            p.classes = classes;
            p.loc_classes = loc_classes;
            p.rows = rows;
            p.background = background;
            p.coder = {static_cast<BoxCode>(code), in_target};
            p.mining = static_cast<Mining>(mining);
            p.sample_size = sample_size;
            p.top_k = top_k;
            p.overlap_threshold = overlap_threshold;
            p.neg_pos_ratio = neg_pos_ratio;
            p.neg_overlap = neg_overlap;
            p.nms_threshold = nms_threshold;
            p.loc_weight = loc_weight;
            p.normalizer = normalizer;
            p.prior_matching = prior_matching;
            p.prior_suppression = prior_suppression;
            p.difficult = difficult;
            p.agnostic = agnostic;
            p.ignore_crossing = ignore_crossing;
            p.bp_inside = bp_inside;
            p.l2 = l2;
            p.logistic = logistic;
            p.loc = loc;
            p.conf = conf;
            return p;
        },
        {kw_only(),
         arg("items"),
         arg("priors"),
         arg("classes"),
         arg("loc_classes"),
         arg("rows"),
         arg("background"),
         arg("code"),
         arg("in_target"),
         arg("mining"),
         arg("sample_size"),
         arg("top_k"),
         arg("overlap_threshold"),
         arg("neg_pos_ratio"),
         arg("neg_overlap"),
         arg("nms_threshold"),
         arg("loc_weight"),
         arg("normalizer"),
         arg("prior_matching"),
         arg("prior_suppression"),
         arg("difficult"),
         arg("agnostic"),
         arg("ignore_crossing"),
         arg("bp_inside"),
         arg("l2"),
         arg("logistic"),
         arg("loc"),
         arg("conf")});
    define(m, "multibox_loss_workspace_bytes", &multibox_loss_workspace_bytes,
           {arg("problem"), kw_only(), arg("forward"), arg("match")});
    define(m, "multibox_loss_forward",
           [](const MultiBoxProblem& problem, Address loss, Address locations, Address scores, Address boxes,
              Address truth, Address match, Address workspace) {
               return BoundLaunch{multibox_loss_forward(problem, multibox_data(locations, scores, boxes, truth, match),
                                                        at<float>(loss), at<void>(workspace))};
           },
           {arg("problem"), kw_only(), arg("loss"), arg("locations"), arg("scores"), arg("boxes"), arg("truth"),
            arg("match") = 0, arg("workspace")});
    define(
        m, "multibox_loss_backward",
        [](const MultiBoxProblem& problem, Address dlocations, Address dscores, Address dloss, Address locations,
           Address scores, Address boxes, Address truth, Address match, bool accumulate_dlocations,
           bool accumulate_dscores, Address workspace) {
            return BoundLaunch{multibox_loss_backward(problem, multibox_data(locations, scores, boxes, truth, match),
                                                      at<float>(dlocations), at<float>(dscores), at<const float>(dloss),
                                                      accumulate_dlocations, accumulate_dscores, at<void>(workspace))};
        },
        {arg("problem"), kw_only(), arg("dlocations") = 0, arg("dscores") = 0, arg("dloss"), arg("locations"),
         arg("scores"), arg("boxes"), arg("truth"), arg("match"), arg("accumulate_dlocations") = false,
         arg("accumulate_dscores") = false, arg("workspace")});
}

void bind_detection_output(py::module_& m) {
    define_class<DetectionProblem>(
        m, "DetectionProblem",
        [](int64_t items, int64_t priors, int64_t classes, int64_t loc_classes, int64_t background, int64_t code,
           bool in_target, float least_score, float threshold, float eta, int64_t candidates, int64_t of_item) {
            return DetectionProblem{
                items,       priors,    classes, loc_classes, background, {static_cast<BoxCode>(code), in_target},
                least_score, threshold, eta,     candidates,  of_item};
        },
        {kw_only(), arg("items"), arg("priors"), arg("classes"), arg("loc_classes"), arg("background"), arg("code"),
         arg("in_target"), arg("least_score"), arg("threshold"), arg("eta"), arg("candidates"), arg("of_item")});
    define(m, "detection_output_workspace_bytes", &detection_output_workspace_bytes, {arg("problem")});
    define(
        m, "detection_output",
        [](const DetectionProblem& problem, Address y, Address locations, Address scores, Address boxes,
           Address workspace) {
            return BoundLaunch{detection_output(problem, at<float>(y), at<const float>(locations),
                                                at<const float>(scores), at<const float>(boxes), at<void>(workspace))};
        },
        {arg("problem"), kw_only(), arg("y"), arg("locations"), arg("scores"), arg("boxes"), arg("workspace")});
}

void bind_detection_evaluate(py::module_& m) {
    define_class<EvaluationProblem>(m, "EvaluationProblem",
                                    [](int64_t detections, int64_t truths, int64_t classes, int64_t background,
                                       int64_t rows, float overlap_threshold, bool difficult, int64_t sized_items) {
                                        return EvaluationProblem{detections, truths,      classes,           background,
                                                                 rows,       sized_items, overlap_threshold, difficult};
                                    },
                                    {kw_only(), arg("detections"), arg("truths"), arg("classes"), arg("background"),
                                     arg("rows"), arg("overlap_threshold"), arg("difficult"), arg("sized_items")});
    define(m, "detection_evaluate_workspace_bytes", &detection_evaluate_workspace_bytes, {arg("problem")});
    define(
        m, "detection_evaluate",
        [](const EvaluationProblem& problem, Address y, Address detections, Address truth, Address sizes,
           Address workspace) {
            return BoundLaunch{detection_evaluate(problem, at<float>(y), at<const float>(detections),
                                                  at<const float>(truth), at<const float>(sizes), at<void>(workspace))};
        },
        {arg("problem"), kw_only(), arg("y"), arg("detections"), arg("truth"), arg("sizes"), arg("workspace")});
}

}  // namespace

void bind_detection(py::module_& m) {
    bind_multibox_loss(m);
    bind_detection_output(m);
    bind_detection_evaluate(m);
}

}  // namespace layermem::cpu
