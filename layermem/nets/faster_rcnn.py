"""Faster R-CNN on VGG-16 as prototxt: proposals of regions and their classes, trained together.

Images are 600x1000, one in a batch.  Without a stage the net reads noise where py-faster-rcnn has Python layers: for
images, targets of anchors, and regions with their targets.  The stage 'python', which solver.prototxt turns on, has
those layers.
source  Ren, He, Girshick, Sun: Faster R-CNN, 2015; layers have the names of rbgirshick/py-faster-rcnn, VGG16,
        faster_rcnn_end2end
"""

from __future__ import annotations

from layermem.nets.prototext import (
    CONSTANT,
    WEIGHT_AND_BIAS,
    NetFiles,
    NetText,
    Value,
    Word,
    dummy_solver,
    filler,
    solver,
)
from layermem.nets.vgg import CONVOLUTIONS, WIDTHS

HEIGHT, WIDTH, CLASSES, REGIONS = 600, 1000, 21, 128
ANCHORS, ROWS, COLUMNS = 9, 38, 63  # of each pixel of conv5_3, which has so many
FROZEN = [{"lr_mult": 0, "decay_mult": 0}, {"lr_mult": 0, "decay_mult": 0}]
PYTHON = {"stage": "python"}
NOISE = {"not_stage": "python"}
ONE = filler("constant", value=1)
TARGET = filler("gaussian", std=0.1)


def python(net: NetText, name: str, bottoms: list[str], tops: list[str], layer: str, param: str) -> None:
    module = {"module": layer.rpartition(".")[0], "layer": layer.rpartition(".")[2], "param_str": param}
    net.layer(name, "Python", bottoms, tops, include=PYTHON, python_param=module)


def noise(net: NetText, name: str, tops: dict[str, tuple[list[int], Value]]) -> None:
    shapes: Value = [{"dim": dim} for dim, _ in tops.values()]
    fields: Value = {"shape": shapes, "data_filler": [fill for _, fill in tops.values()]}
    net.layer(name, "DummyData", [], list(tops), include=NOISE, dummy_data_param=fields)


def data(net: NetText) -> None:
    noise(net, "input-data", {"data": ([1, 3, HEIGHT, WIDTH], filler("uniform", min=-2, max=2))})
    tops = ["data", "im_info", "gt_boxes"]
    python(net, "input-data", [], tops, "roi_data_layer.layer.RoIDataLayer", f"'num_classes': {CLASSES}")


def anchors(net: NetText) -> None:
    """The network of proposals: a class and a box for each anchor, their targets, and losses."""
    small: dict[str, Value] = {"weight_filler": filler("gaussian", std=0.01), "bias_filler": CONSTANT}
    fields: dict[str, Value] = {"num_output": 512, "kernel_size": 3, "pad": 1, **small}
    x = net.relu("rpn_relu/3x3", net.convolution("rpn_conv/3x3", "conv5_3", fields, param=WEIGHT_AND_BIAS))
    for name, outputs in (("rpn_cls_score", 2 * ANCHORS), ("rpn_bbox_pred", 4 * ANCHORS)):
        net.convolution(name, x, {"num_output": outputs, "kernel_size": 1, **small}, param=WEIGHT_AND_BIAS)
    two: Value = {"shape": {"dim": [0, 2, -1, 0]}}
    net.layer("rpn_cls_score_reshape", "Reshape", "rpn_cls_score", "rpn_cls_score_reshape", reshape_param=two)
    boxes = [1, 4 * ANCHORS, ROWS, COLUMNS]
    targets: dict[str, tuple[list[int], Value]] = {
        "rpn_labels": ([1, 1, ANCHORS * ROWS, COLUMNS], filler("uniform", min=0, max=1.999)),
        "rpn_bbox_targets": (boxes, TARGET),
        "rpn_bbox_inside_weights": (boxes, ONE),
        "rpn_bbox_outside_weights": (boxes, filler("constant", value=0.004)),
    }
    noise(net, "rpn-data", targets)
    read = ["rpn_cls_score", "gt_boxes", "im_info", "data"]
    python(net, "rpn-data", read, list(targets), "rpn.anchor_target_layer.AnchorTargetLayer", "'feat_stride': 16")
    net.layer(
        "rpn_loss_cls",
        "SoftmaxWithLoss",
        ["rpn_cls_score_reshape", "rpn_labels"],
        "rpn_cls_loss",
        propagate_down=[True, False],
        loss_weight=1,
        loss_param={"ignore_label": -1, "normalize": True},
    )
    smooth_l1(
        net,
        "rpn_loss_bbox",
        ["rpn_bbox_pred", *list(targets)[1:]],
        "rpn_loss_bbox",
        smooth_l1_loss_param={"sigma": 3.0},
    )


def smooth_l1(net: NetText, name: str, bottoms: list[str], top: str, **more: Value) -> None:
    net.layer(name, "SmoothL1Loss", bottoms, top, loss_weight=1, **more)


def regions(net: NetText) -> None:
    """Regions from the scores of anchors, and their targets."""
    net.layer("rpn_cls_prob", "Softmax", "rpn_cls_score_reshape", "rpn_cls_prob", include=PYTHON)
    many: Value = {"shape": {"dim": [0, 2 * ANCHORS, -1, 0]}}
    net.layer(
        "rpn_cls_prob_reshape", "Reshape", "rpn_cls_prob", "rpn_cls_prob_reshape", include=PYTHON, reshape_param=many
    )
    scores = ["rpn_cls_prob_reshape", "rpn_bbox_pred", "im_info"]
    python(net, "proposal", scores, ["rpn_rois"], "rpn.proposal_layer.ProposalLayer", "'feat_stride': 16")
    corners = {"item": (0, 0), "left": (0, 400), "top": (0, 200), "right": (500, 999), "bottom": (300, 599)}
    columns: dict[str, tuple[list[int], Value]] = {
        f"roi_{name}": ([REGIONS, 1], filler("uniform", min=low, max=high)) for name, (low, high) in corners.items()
    }
    noise(net, "regions", columns)
    net.layer("rois", "Concat", list(columns), "rois", include=NOISE, concat_param={"axis": 1})
    boxes = [REGIONS, 4 * CLASSES]
    targets: dict[str, tuple[list[int], Value]] = {
        "labels": ([REGIONS], filler("uniform", min=0, max=CLASSES - 0.001)),
        "bbox_targets": (boxes, TARGET),
        "bbox_inside_weights": (boxes, ONE),
        "bbox_outside_weights": (boxes, ONE),
    }
    noise(net, "roi-data", targets)
    tops = ["rois", *targets]
    layer = "rpn.proposal_target_layer.ProposalTargetLayer"
    python(net, "roi-data", ["rpn_rois", "gt_boxes"], tops, layer, f"'num_classes': {CLASSES}")


def faster_rcnn() -> NetText:
    net = NetText(
        "Faster R-CNN (VGG-16)",
        notes=[
            "Ren, He, Girshick, Sun: Faster R-CNN, 2015, on VGG-16, trained end to end.",
            "Written by tools/make_net.py; change layermem/nets, not this file.",
        ],
    )
    data(net)
    x = "data"
    for stage, (count, width) in enumerate(zip(CONVOLUTIONS[16], WIDTHS), start=1):
        for index in range(1, count + 1):
            fields: dict[str, Value] = {
                "num_output": width,
                "kernel_size": 3,
                "pad": 1,
                "weight_filler": filler("msra"),
            }
            name, param = f"conv{stage}_{index}", FROZEN if stage < 3 else WEIGHT_AND_BIAS
            x = net.relu(f"relu{stage}_{index}", net.convolution(name, x, fields, param=param))
        if stage < 5:
            x = net.pool(f"pool{stage}", x, "MAX", kernel_size=2, stride=2)
    anchors(net)
    regions(net)
    window: Value = {"pooled_w": 7, "pooled_h": 7, "spatial_scale": 0.0625}
    x = net.layer("roi_pool5", "ROIPooling", ["conv5_3", "rois"], "pool5", roi_pooling_param=window)
    for number in (6, 7):
        fill = filler("gaussian", std=0.005)
        x = net.fc(f"fc{number}", x, param=WEIGHT_AND_BIAS, num_output=4096, weight_filler=fill, bias_filler=CONSTANT)
        x = net.dropout(f"drop{number}", net.relu(f"relu{number}", x), 0.5)
    for name, outputs, std in (("cls_score", CLASSES, 0.01), ("bbox_pred", 4 * CLASSES, 0.001)):
        fill = filler("gaussian", std=std)
        net.fc(name, x, param=WEIGHT_AND_BIAS, num_output=outputs, weight_filler=fill, bias_filler=CONSTANT)
    net.layer("accuracy", "Accuracy", ["cls_score", "labels"], "accuracy", include={"phase": Word("TEST")})
    classes = ["cls_score", "labels"]
    net.layer("loss_cls", "SoftmaxWithLoss", classes, "loss_cls", propagate_down=[True, False], loss_weight=1)
    smooth_l1(
        net, "loss_bbox", ["bbox_pred", "bbox_targets", "bbox_inside_weights", "bbox_outside_weights"], "loss_bbox"
    )
    return net


def net_files() -> NetFiles:
    text = solver(
        ["The authors' rates; they start from VGG-16: --weights takes its layers.  Its Python layers are theirs."],
        net="train_val.prototxt",
        train_state={"stage": "python"},
        base_lr=0.001,
        lr_policy="step",
        gamma=0.1,
        stepsize=50000,
        max_iter=70000,
        momentum=0.9,
        weight_decay=0.0005,
        display=20,
        average_loss=100,
        iter_size=2,
        snapshot=10000,
        snapshot_prefix="out/faster_rcnn",
    )
    noise_solver = dummy_solver(
        "out/faster_rcnn_dummy", stage=None, base_lr=0.0001, lr_policy="fixed", momentum=0.9, weight_decay=0.0005
    )
    return NetFiles(faster_rcnn(), text, noise_solver)
