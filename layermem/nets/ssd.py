"""SSD300 and SSD512 on VGG-16 as prototxt: detectors of the 20 classes of Pascal VOC.

Layers have the names in the weights that the authors published.  With stage 'dummy' the net reads noise: images, and
true boxes whose columns are drawn one by one.
source  Liu et al.: SSD: Single Shot MultiBox Detector, 2016; examples/ssd/ssd_pascal.py and ssd_pascal_512.py of
        weiliu89/caffe, branch ssd
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from layermem.errors import InputError
from layermem.nets.prototext import (
    CONSTANT,
    IMAGENET_MEAN,
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

CLASSES = 21
VARIANCE: Value = [0.1, 0.1, 0.2, 0.2]
BATCH = {"TRAIN": 32, "TEST": 8}
LABEL_MAP = "data/VOC0712/labelmap_voc.prototxt"
COLUMNS = {  # ranges of the numbers in a row of true boxes in stage 'dummy'
    "instance": (0, 0),
    "left": (0, 0.4),
    "top": (0, 0.4),
    "right": (0.5, 1),
    "bottom": (0.5, 1),
    "difficult": (0, 0),
}


class ScoreMap(NamedTuple):
    """A map from which boxes are predicted: sizes and steps in pixels of the image."""

    name: str
    smallest: float
    largest: float
    ratios: list[int]
    step: int


class ExtraStage(NamedTuple):
    """A stage behind VGG-16: a 1x1 convolution to half the outputs, and one with these fields."""

    outputs: int
    kernel: int
    pad: int
    stride: int


MAPS = {
    300: (
        ScoreMap("conv4_3_norm", 30, 60, [2], 8),
        ScoreMap("fc7", 60, 111, [2, 3], 16),
        ScoreMap("conv6_2", 111, 162, [2, 3], 32),
        ScoreMap("conv7_2", 162, 213, [2, 3], 64),
        ScoreMap("conv8_2", 213, 264, [2], 100),
        ScoreMap("conv9_2", 264, 315, [2], 300),
    ),
    512: (
        ScoreMap("conv4_3_norm", 35.84, 76.8, [2], 8),
        ScoreMap("fc7", 76.8, 153.6, [2, 3], 16),
        ScoreMap("conv6_2", 153.6, 230.4, [2, 3], 32),
        ScoreMap("conv7_2", 230.4, 307.2, [2, 3], 64),
        ScoreMap("conv8_2", 307.2, 384.0, [2, 3], 128),
        ScoreMap("conv9_2", 384.0, 460.8, [2], 256),
        ScoreMap("conv10_2", 460.8, 537.6, [2], 512),
    ),
}
EXTRAS = {  # from stage 6 on
    300: (ExtraStage(512, 3, 1, 2), ExtraStage(256, 3, 1, 2), ExtraStage(256, 3, 0, 1), ExtraStage(256, 3, 0, 1)),
    512: (
        *[ExtraStage(512, 3, 1, 2), ExtraStage(256, 3, 1, 2)],
        *[ExtraStage(256, 3, 1, 2)] * 2,
        ExtraStage(256, 4, 1, 1),
    ),
}


def samplers() -> list[Value]:
    """The whole image, or windows with at least, or at most, a share of an object."""
    window = {"min_scale": 0.3, "max_scale": 1, "min_aspect_ratio": 0.5, "max_aspect_ratio": 2}
    least: list[Value] = [{"min_jaccard_overlap": share} for share in (0.1, 0.3, 0.5, 0.7, 0.9)]
    constraints = [*least, {"max_jaccard_overlap": 1.0}]
    return [
        {"max_sample": 1, "max_trials": 1},
        *({"sampler": window, "sample_constraint": each, "max_sample": 1, "max_trials": 50} for each in constraints),
    ]


def annotated(net: NetText, phase: str, size: int) -> None:
    """Add Pascal VOC from LMDBs at the paths of the fork's scripts."""
    modes: Value = [Word(mode) for mode in ("LINEAR", "AREA", "NEAREST", "CUBIC", "LANCZOS4")]
    resize: dict[str, Value] = {"prob": 1, "resize_mode": Word("WARP"), "height": size, "width": size}
    transform: dict[str, Value] = {
        "mean_value": IMAGENET_MEAN,
        "resize_param": resize | {"interp_mode": Word("LINEAR")},
    }
    own: dict[str, Value] = {"label_map_file": LABEL_MAP}
    if phase == "TRAIN":
        transform = {
            "mirror": True, "mean_value": IMAGENET_MEAN, "resize_param": resize | {"interp_mode": modes},
            "emit_constraint": {"emit_type": Word("CENTER")},
            "distort_param": {
                "brightness_prob": 0.5, "brightness_delta": 32, "contrast_prob": 0.5, "contrast_lower": 0.5,
                "contrast_upper": 1.5, "hue_prob": 0.5, "hue_delta": 18, "saturation_prob": 0.5,
                "saturation_lower": 0.5, "saturation_upper": 1.5, "random_order_prob": 0.0,
            },
            "expand_param": {"prob": 0.5, "max_expand_ratio": 4},
        }  # fmt: skip
        own["batch_sampler"] = samplers()
    name = "trainval" if phase == "TRAIN" else "test"
    source: dict[str, Value] = {
        "source": f"examples/VOC0712/VOC0712_{name}_lmdb",
        "batch_size": BATCH[phase],
        "backend": Word("LMDB"),
    }
    net.layer(
        "data",
        "AnnotatedData",
        [],
        ["data", "label"],
        include={"phase": Word(phase), "not_stage": "dummy"},
        transform_param=transform,
        data_param=source,
        annotated_data_param=own,
    )


def dummy(net: NetText, phase: str, size: int) -> None:
    """Add noise images, and boxes of the first image only, so that the net takes any batch."""
    batch, include = BATCH[phase], {"phase": Word(phase), "stage": "dummy"}
    shape: Value = {"dim": [batch, 3, size, size]}
    fill: Value = {"type": "uniform", "min": -2, "max": 2}
    net.layer(
        "data", "DummyData", [], ["data"], include=include, dummy_data_param={"shape": shape, "data_filler": fill}
    )
    ranges = {"item": (0, 0), "class": (1, CLASSES - 0.001), **COLUMNS}
    tops = [f"box_{column}" for column in ranges]
    fills: Value = [{"type": "uniform", "min": low, "max": high} for low, high in ranges.values()]
    rows: Value = {"dim": [1, 1, 8, 1]}
    net.layer("boxes", "DummyData", [], tops, include=include, dummy_data_param={"shape": rows, "data_filler": fills})
    net.layer("label", "Concat", tops, "label", include=include, concat_param={"axis": 3})


def vgg_without_its_classifier(net: NetText) -> str:
    x = "data"
    for stage, (count, width) in enumerate(zip(CONVOLUTIONS[16], WIDTHS), start=1):
        for index in range(1, count + 1):
            x = conv_relu(net, f"conv{stage}_{index}", x, width, 3, relu=f"relu{stage}_{index}", fields={"pad": 1})
        last: dict[str, Value] = {"kernel_size": 3, "stride": 1, "pad": 1}
        x = net.pool(f"pool{stage}", x, "MAX", **(last if stage == 5 else {"kernel_size": 2, "stride": 2}))
    x = conv_relu(net, "fc6", x, 1024, 3, relu="relu6", fields={"pad": 6, "dilation": 6})
    return conv_relu(net, "fc7", x, 1024, 1, relu="relu7")


def conv_relu(
    net: NetText,
    name: str,
    bottom: str,
    outputs: int,
    kernel: int,
    *,
    relu: str = "",
    fields: Mapping[str, Value] | None = None,
) -> str:
    all_fields = {
        "num_output": outputs,
        "kernel_size": kernel,
        **(fields or {}),
        "weight_filler": filler("xavier"),
        "bias_filler": CONSTANT,
    }
    return net.relu(relu or f"{name}_relu", net.convolution(name, bottom, all_fields, param=WEIGHT_AND_BIAS))


def extra_maps(net: NetText, x: str, size: int) -> None:
    for stage, (outputs, kernel, pad, stride) in enumerate(EXTRAS[size], start=6):
        x = conv_relu(net, f"conv{stage}_1", x, outputs // 2, 1)
        x = conv_relu(net, f"conv{stage}_2", x, outputs, kernel, fields={"pad": pad, "stride": stride})
    net.layer(
        "conv4_3_norm",
        "Normalize",
        "conv4_3",
        "conv4_3_norm",
        norm_param={"across_spatial": False, "scale_filler": filler("constant", value=20), "channel_shared": False},
    )


def predictions(net: NetText, kind: str, of_box: int, maps: Sequence[ScoreMap]) -> None:
    """Add locations ("loc") or scores ("conf") of all boxes of all maps, in one row for each image."""
    flat = []
    for each in maps:
        name, boxes = f"{each.name}_mbox_{kind}", 2 + 2 * len(each.ratios)
        net.conv(
            name,
            each.name,
            param=WEIGHT_AND_BIAS,
            num_output=of_box * boxes,
            kernel_size=3,
            pad=1,
            weight_filler=filler("xavier"),
            bias_filler=CONSTANT,
        )
        net.layer(f"{name}_perm", "Permute", name, f"{name}_perm", permute_param={"order": [0, 2, 3, 1]})
        flat.append(net.layer(f"{name}_flat", "Flatten", f"{name}_perm", f"{name}_flat", flatten_param={"axis": 1}))
    net.layer(f"mbox_{kind}", "Concat", flat, f"mbox_{kind}", concat_param={"axis": 1})


def prior_boxes(net: NetText, maps: Sequence[ScoreMap]) -> None:
    tops = []
    for each in maps:
        name = f"{each.name}_mbox_priorbox"
        fields: dict[str, Value] = {
            "min_size": each.smallest,
            "max_size": each.largest,
            "aspect_ratio": list(each.ratios),
            "flip": True,
            "clip": False,
            "variance": VARIANCE,
            "step": each.step,
            "offset": 0.5,
        }
        tops.append(net.layer(name, "PriorBox", [each.name, "data"], name, prior_box_param=fields))
    net.layer("mbox_priorbox", "Concat", tops, "mbox_priorbox", concat_param={"axis": 2})


def ssd(size: int) -> NetText:
    net = NetText(
        f"SSD{size}",
        notes=[
            f"SSD{size} on VGG-16: Liu et al., SSD: Single Shot MultiBox Detector, 2016.",
            "Written by tools/make_net.py; change layermem/nets, not this file.",
        ],
    )
    for phase in ("TRAIN", "TEST"):
        annotated(net, phase, size)
    for phase in ("TRAIN", "TEST"):
        dummy(net, phase, size)
    extra_maps(net, vgg_without_its_classifier(net), size)
    predictions(net, "loc", 4, MAPS[size])
    predictions(net, "conf", CLASSES, MAPS[size])
    prior_boxes(net, MAPS[size])
    loss(net)
    evaluation(net)
    return net


def loss(net: NetText) -> None:
    outputs = ["mbox_loc", "mbox_conf", "mbox_priorbox"]
    net.layer(
        "mbox_loss",
        "MultiBoxLoss",
        [*outputs, "label"],
        "mbox_loss",
        include={"phase": Word("TRAIN")},
        propagate_down=[True, True, False, False],
        loss_param={"normalization": Word("VALID")},
        multibox_loss_param={
            "loc_loss_type": Word("SMOOTH_L1"),
            "conf_loss_type": Word("SOFTMAX"),
            "loc_weight": 1,
            "num_classes": CLASSES,
            "share_location": True,
            "match_type": Word("PER_PREDICTION"),
            "overlap_threshold": 0.5,
            "use_prior_for_matching": True,
            "background_label_id": 0,
            "use_difficult_gt": True,
            "neg_pos_ratio": 3,
            "neg_overlap": 0.5,
            "code_type": Word("CENTER_SIZE"),
            "ignore_cross_boundary_bbox": False,
            "mining_type": Word("MAX_NEGATIVE"),
        },
    )


def evaluation(net: NetText) -> None:
    """The detections of phase TEST, and their score."""
    test: dict[str, Value] = {"include": {"phase": Word("TEST")}}
    rows: Value = {"shape": {"dim": [0, -1, CLASSES]}}
    x = net.layer("mbox_conf_reshape", "Reshape", "mbox_conf", "mbox_conf_reshape", **test, reshape_param=rows)
    x = net.layer("mbox_conf_softmax", "Softmax", x, "mbox_conf_softmax", **test, softmax_param={"axis": 2})
    x = net.layer("mbox_conf_flatten", "Flatten", x, "mbox_conf_flatten", **test, flatten_param={"axis": 1})
    net.layer(
        "detection_out",
        "DetectionOutput",
        ["mbox_loc", x, "mbox_priorbox"],
        "detection_out",
        **test,
        detection_output_param={
            "num_classes": CLASSES,
            "share_location": True,
            "background_label_id": 0,
            "nms_param": {"nms_threshold": 0.45, "top_k": 400},
            "code_type": Word("CENTER_SIZE"),
            "keep_top_k": 200,
            "confidence_threshold": 0.01,
        },
    )
    net.layer(
        "detection_eval",
        "DetectionEvaluate",
        ["detection_out", "label"],
        "detection_eval",
        **test,
        detection_evaluate_param={
            "num_classes": CLASSES,
            "background_label_id": 0,
            "overlap_threshold": 0.5,
            "evaluate_difficult_gt": False,
        },
    )


def net_files(size: int) -> NetFiles:
    if size not in MAPS:
        raise InputError(f"SSD{size} is not defined (choose from {', '.join(map(str, MAPS))})")
    text = solver(
        ["The authors' rate and batch; they start from VGG-16: --weights takes its convolutions."],
        net="train_val.prototxt",
        test_iter=619,
        test_interval=10000,
        test_initialization=False,
        base_lr=0.001,
        lr_policy="multistep",
        gamma=0.1,
        stepvalue=[80000, 100000, 120000],
        max_iter=120000,
        momentum=0.9,
        weight_decay=0.0005,
        average_loss=10,
        display=10,
        snapshot=80000,
        snapshot_prefix=f"out/ssd{size}",
        eval_type="detection",
        ap_version="11point",
    )
    noise = dummy_solver(f"out/ssd{size}_dummy", base_lr=0.0001, lr_policy="fixed", momentum=0.9, weight_decay=0.0005)
    return NetFiles(ssd(size), text, noise)
