"""Boxes: losses of SSD and YOLO, detections and their evaluation."""

from typing import Any

import numpy as np

from tests.cases.base import add
from tests.op_case import Draw, Shape


def boxes(rng: np.random.Generator, count: int) -> np.ndarray:
    """Boxes of at least a fifth of the image along each axis; some cross its border."""
    low = rng.uniform(-0.05, 0.6, (count, 2))
    return np.concatenate([low, low + rng.uniform(0.2, 0.45, (count, 2))], axis=1)


def priors(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """Boxes and their variances, as PriorBox gives them."""
    count = shape[2] // 4
    return np.stack([boxes(rng, count), np.tile([0.1, 0.1, 0.2, 0.2], (count, 1))]).reshape(shape)


def truth(items: int, classes: int) -> Draw:
    """Rows of true boxes of the first items, the last row unused and the one before difficult."""

    def draw(rng: np.random.Generator, shape: Shape) -> np.ndarray:
        rows = shape[2]
        item, label = rng.integers(0, items, rows), rng.integers(1, classes, rows)
        instance, difficult = np.zeros(rows), np.arange(rows) == rows - 2
        table = np.column_stack([item, label, instance, boxes(rng, rows), difficult])
        table[-1, 0] = -1
        return table.reshape(shape)

    return draw


def multibox(name: str, settings: str, *, each: int = 1) -> None:
    """Add a case over 3 items, the last without a box, of 9 priors with 3 classes and `each` locations per prior."""
    add(
        f"MultiBoxLoss{name}",
        f'type: "MultiBoxLoss" multibox_loss_param {{ num_classes: 3 {settings} }}',
        medium=[(3, 9 * each * 4), (3, 9 * 3), (1, 2, 9 * 4), (1, 1, 7, 8)],
        drawn={2: priors, 3: truth(2, 3)},
    )


CENTER = "code_type: CENTER_SIZE"
multibox("", CENTER)
multibox(", bipartite", "match_type: BIPARTITE use_difficult_gt: false neg_pos_ratio: 1.5 loc_weight: 0.5")
multibox(", logistic, L2", f"{CENTER} mining_type: NONE conf_loss_type: LOGISTIC loc_loss_type: L2")
multibox(", corners of size", "code_type: CORNER_SIZE encode_variance_in_target: true neg_overlap: 0.2")
multibox(
    " of predictions",
    f"{CENTER} use_prior_for_matching: false overlap_threshold: 0.3 bp_inside: true "
    "nms_param { nms_threshold: 0.4 top_k: 5 }",
)
multibox(
    " of hard examples",
    "mining_type: HARD_EXAMPLE sample_size: 4 overlap_threshold: 0.3 "
    "nms_param { nms_threshold: 0.6 top_k: 7 } use_prior_for_nms: true",
)
multibox(
    " by class", "share_location: false mining_type: NONE use_prior_for_matching: false overlap_threshold: 0.2", each=3
)
multibox(" by class of priors", "share_location: false mining_type: NONE ignore_cross_boundary_bbox: true", each=3)
multibox(", batch size", f"{CENTER} bp_inside: true }} loss_param {{ normalization: BATCH_SIZE")


def shares(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """Shares of three classes."""
    powers = np.exp(rng.standard_normal((shape[0], shape[1] // 3, 3)))
    return (powers / powers.sum(axis=2, keepdims=True)).reshape(shape)


def detect(name: str, settings: str, *, each: int = 1) -> None:
    """Add a case over 2 items of 9 priors with 3 classes."""
    add(
        f"DetectionOutput{name}",
        f'type: "DetectionOutput" detection_output_param {{ num_classes: 3 {settings} }}',
        medium=[(2, 9 * each * 4), (2, 27), (1, 2, 36)],
        drawn={1: shares, 2: priors},
    )


detect("", "nms_param { nms_threshold: 0.3 }")
detect(" of SSD", f"{CENTER} nms_param {{ nms_threshold: 0.45 top_k: 6 }} keep_top_k: 5 confidence_threshold: 0.2")
detect(" by class", "share_location: false code_type: CORNER_SIZE nms_param { nms_threshold: 0.6 eta: 0.9 }", each=3)
detect(", clipped", f"{CENTER} nms_param {{ nms_threshold: 0.45 }} clip: true")
detect(", no background", "background_label_id: -1 variance_encoded_in_target: true keep_top_k: 50")


def detections(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    rows = shape[2]
    columns = [rng.integers(0, 2, rows), rng.integers(1, 3, rows), rng.random(rows), boxes(rng, rows)]
    return np.column_stack(columns).reshape(shape)


add(
    "DetectionEvaluate",
    'type: "DetectionEvaluate" detection_evaluate_param { num_classes: 3 overlap_threshold: 0.3 '
    "evaluate_difficult_gt: false }",
    medium=[(1, 1, 9, 7), (1, 1, 6, 8)],
    drawn={0: detections, 1: truth(2, 3)},
)


def image_sizes(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    windows = np.tile(np.array([0, 0.1, 1, 0.9]), (shape[0], 1))
    return np.column_stack([windows, rng.integers(5, 50, (shape[0], 2))])


add(
    "DetectionEvaluate in pixels",
    'type: "DetectionEvaluate" detection_evaluate_param { num_classes: 3 overlap_threshold: 0.3 }',
    medium=[(1, 1, 9, 7), (1, 1, 6, 8), (2, 6)],
    drawn={0: detections, 1: truth(2, 3), 2: image_sizes},
)


def cell_truth(classes: int) -> Draw:
    """Rows of true boxes for grids; the last row of each item is unused, and the last item has no box."""

    def draw(rng: np.random.Generator, shape: Shape) -> np.ndarray:
        rows = shape[:2]
        numbers = [rng.integers(0, classes, rows), *rng.random((2, *rows)), *rng.uniform(0.1, 0.7, (2, *rows))]
        table = np.stack(numbers, axis=-1)
        table[:, -1], table[-1] = 0, 0
        return table.reshape(shape)

    return draw


def region(name: str, settings: str, **more: Any) -> None:
    """Add a case over grids of 3 x 3 cells, 2 anchors and 3 classes."""
    add(
        f"RegionLoss{name}",
        f'type: "RegionLoss" region_loss_param {{ num: 2 num_class: 3 biases: [1.2, 0.7, 0.5, 1.6] {settings} }}',
        medium=[(2, 16, 3, 3), (2, 5, 5)],
        drawn={1: cell_truth(3)},
        derivative=False,
        **more,
    )


region("", "object_scale: 5 noobject_scale: 1 coord_scale: 1 thresh: 0.3")
region(" of sizes, no warm-up", "rescore: 0 bias_match: 0 thresh: 0.1 class_scale: 0.5", phase=1)


def yolov3(name: str, settings: str) -> None:
    """Add a case over grids of 3 x 3 cells, 2 of 3 anchors and 3 classes."""
    add(
        f"Yolov3{name}",
        'type: "Yolov3" yolov3_param { num: 2 num_class: 3 biases: [12, 7, 30, 30, 5, 16] '
        f"mask: [2, 0] anchors_scale: 10 {settings} }}",
        medium=[(2, 16, 3, 3), (2, 9, 5)],
        drawn={1: cell_truth(3)},
        derivative=False,
    )


yolov3("", "thresh: 0.3 class_scale: 0.5")
yolov3(" of squares", "use_logic_gradient: true object_scale: 5 coord_scale: 1")
GRID = "confidence_threshold: 0.1 nms_threshold: 0.3"
add(
    "YoloDetectionOutput",
    'type: "YoloDetectionOutput" yolo_detection_output_param { num_box: 2 num_classes: 3 '
    f"{GRID} biases: [1.2, 0.7, 0.5, 1.6] }}",
    medium=[(2, 16, 3, 3), (2, 16, 5, 5)],
)
add(
    "Yolov3DetectionOutput",
    'type: "Yolov3DetectionOutput" yolov3_detection_output_param { num_box: 2 num_classes: 3 '
    f"{GRID} biases: [10, 14, 23, 27, 37, 58, 81, 82] mask: [2, 3, 0, 1] anchors_scale: [32, 16] }}",
    medium=[(2, 16, 3, 3), (2, 16, 5, 5)],
)
