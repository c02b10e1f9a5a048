"""Reductions, scores and losses.

REDUCED, LARGEST, LABELLED, PAIRS   of kernels of the cpu backend, beside AXES of base.py
COMPARED, CONTRASTED                of layers
"""

from typing import Any

import numpy as np

from tests.cases.base import BATCH, CLIP, IMAGE, ODD, PIXELS, ROWS, add, cases_of, integers, normal
from tests.op_case import Shape

# Sizes before, along and behind the axis: one long row in parts, many rows, planes of few lines and of many, a number.
REDUCED: list[Shape] = [(1, 40001, 1), (700, 33, 1), (3, 130, 20), (2, 5, 700), (1, 1, 1)]
# Rows, their size, how many of the largest, and places from one element of a row to the next.
LARGEST = [(1, 1, 1, 1), (90, 37, 5, 1), (12, 100, 100, 3), (6, 5003, 1, 2), (1500, 21, 1, 1), (90, 3, 1, 5)]
LABELLED = [(1, 3, 1), (40, 5, 7), (3, 9001, 1)]  # items, channels, pixels: a few, of images, in parts
PAIRS = [(1, 1), (50, 40), (3, 9000)]  # items and their elements: one, some, in parts
# For checks of layers: two bottoms with as many elements per item, alike or not; six items of three elements.
COMPARED = [((2, 3), (2, 3)), ((2, 3, 2, 2), (2, 3, 2, 2)), ((2, 3, 2, 2), (2, 12))]
CONTRASTED = [(6, 3), (6, 3, 1, 1)]

Reduction, ArgMax = cases_of("Reduction"), cases_of("ArgMax")
for _operation in ("SUM", "MEAN", "ASUM", "SUMSQ"):
    for _axis in (0, 1, 2, 3):
        Reduction(
            f"Reduction {_operation} from axis {_axis}",
            f"operation: {_operation} axis: {_axis} coeff: 0.7",
            medium=IMAGE,
            edges=(3, 4, 5, 7),
        )
        Reduction(
            f"Reduction {_operation} from axis {_axis} of wide lines",
            f"operation: {_operation} axis: {_axis} coeff: 0.5",
            edges=(2, 3, 1, 400),
        )
Reduction("Reduction of long rows", "axis: 1", medium=(3, 40001))
Reduction("Reduction SUM", "axis: 1", small=ODD)
Reduction("Reduction ASUM", "operation: ASUM axis: 2", small=ODD)
Reduction("Reduction SUMSQ", "operation: SUMSQ", small=ODD)
Reduction("Reduction of five axes to four", "axis: 4", small=(2, 3, 2, 2, 3), medium=CLIP)
Reduction("Reduction of items", "operation: SUMSQ axis: 1", timing=BATCH)
Reduction("Reduction of pixels", "axis: 2", timing=BATCH)


ArgMax("ArgMax", "", medium=(5, 40))
ArgMax("ArgMax 2 of items", "top_k: 2", small=ODD)
ArgMax("ArgMax 3 of channels", "axis: 1 top_k: 3", medium=IMAGE)
ArgMax("ArgMax 7 of rows", "axis: 2 top_k: 7 out_max_val: true", medium=IMAGE)
ArgMax("ArgMax 4 of items, with values", "top_k: 4 out_max_val: true", medium=IMAGE)
ArgMax("ArgMax 1 of items", "top_k: 1", medium=IMAGE)
ArgMax("ArgMax of 21", "axis: 1", timing=PIXELS)
ArgMax("ArgMax 5 of 1000", "top_k: 5", timing=ROWS)
for _top in (1, 3):
    for _settings in ("", "out_max_val: true", "axis: 1", "axis: 2 out_max_val: true", "axis: 3"):
        ArgMax(f"ArgMax {_top}: {_settings}", f"{_settings} top_k: {_top}", edges=(3, 5, 4, 7))


def signed_zeros(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """Many equal elements, and zeros of both signs, which are equal."""
    return rng.integers(-1, 2, shape) * rng.choice([-1.0, 1.0], shape)


ArgMax("ArgMax 4 of equal elements", "axis: 1 top_k: 4", edges=(6, 40), drawn={0: signed_zeros})

# -- scores and losses ---------------------------------------------------------------------------------------------


def labelled(name: str, text: str, classes: int = 2, **more: Any) -> None:
    """A loss or an accuracy whose second bottom holds classes."""
    add(name, text, labels=1, classes=classes, **more)


LOSS = 'type: "SoftmaxWithLoss"'
add("Softmax", 'type: "Softmax"', small=(9, 35), medium=IMAGE)
add("Softmax of planes", 'type: "Softmax"', small=(2, 3, 5))
add("Softmax of 1000", 'type: "Softmax"', timing=ROWS)
add("Softmax of 21", 'type: "Softmax"', timing=PIXELS)
labelled("SoftmaxWithLoss", LOSS, 4, medium=[(5, 4), (5,)])
labelled("SoftmaxWithLoss and its softmax", f'{LOSS} top: "l" top: "p"', 35, small=[(9, 35), (9,)])
labelled("SoftmaxWithLoss of planes", f"{LOSS} loss_param {{ ignore_label: 1 }}", 3, small=[(2, 3, 5), (2, 5)])
labelled("SoftmaxWithLoss of images", f"{LOSS} loss_param {{ ignore_label: 1 }}", 6, medium=[IMAGE, (2, 1, 7, 5)])
labelled(
    "SoftmaxWithLoss, labels in another order", f"{LOSS} softmax_param {{ axis: 2 }}", 7, medium=[IMAGE, (2, 6, 5)]
)
labelled("SoftmaxWithLoss of 1000", LOSS, 1000, timing=[ROWS, ROWS[:1]])
labelled("SoftmaxWithLoss of 21", LOSS, 21, timing=[PIXELS, (4, 1, 480, 480)])
labelled("SoftmaxWithLoss of 2", LOSS, 2, timing=[(8, 2, 480, 480), (8, 1, 480, 480)])
GAIN = 'type: "InfogainLoss"'
labelled("InfogainLoss", GAIN, 4, medium=[(5, 4), (5,), (4, 4)])
labelled("InfogainLoss and its softmax", f'{GAIN} top: "l" top: "p"', 35, small=[(9, 35), (9,), (1, 1, 35, 35)])
labelled("InfogainLoss of planes", f"{GAIN} loss_param {{ ignore_label: 1 }}", 3, small=[(2, 3, 5), (2, 5), (3, 3)])
labelled(
    "InfogainLoss of images",
    f"{GAIN} loss_param {{ ignore_label: 1 normalization: FULL }}",
    6,
    medium=[IMAGE, (2, 1, 7, 5), (6, 6)],
)
labelled(
    "InfogainLoss, labels in another order",
    f"{GAIN} infogain_loss_param {{ axis: 2 }}",
    7,
    medium=[IMAGE, (2, 6, 5), (7, 7)],
)
labelled("Accuracy", 'type: "Accuracy" top: "a" top: "c"', 35, small=[(9, 35), (9,)])
labelled("Accuracy of planes", 'type: "Accuracy"', 3, small=[(2, 3, 5), (2, 5)])
labelled("Accuracy, top 2", 'type: "Accuracy" accuracy_param { top_k: 2 }', 5, medium=[(9, 5), (9,)])
labelled(
    "Accuracy by class",
    'type: "Accuracy" top: "a" top: "c" accuracy_param { ignore_label: 1 }',
    6,
    medium=[IMAGE, (2, 1, 7, 5)],
)
labelled(
    "Accuracy along columns",
    'type: "Accuracy" top: "a" top: "c" accuracy_param { axis: 3 }',
    5,
    medium=[IMAGE, (2, 6, 7)],
)
labelled("Accuracy of 1000", 'type: "Accuracy"', 1000, timing=[ROWS, ROWS[:1]])
labelled("Accuracy of 21", 'type: "Accuracy"', 21, timing=[PIXELS, (4, 1, 480, 480)])
add("EuclideanLoss", 'type: "EuclideanLoss"', small=[ODD, ODD], medium=[(4, 6), (4, 6)], timing=[BATCH, BATCH])
add("EuclideanLoss, images and rows", 'type: "EuclideanLoss"', medium=[IMAGE, (2, 210)])
add("EuclideanLoss, two orders", 'type: "EuclideanLoss"', medium=[IMAGE, (2, 5, 6, 7)])
labelled(
    "SigmoidCrossEntropyLoss",
    'type: "SigmoidCrossEntropyLoss"',
    small=[ODD, ODD],
    medium=[IMAGE, IMAGE],
    timing=[BATCH, BATCH],
)
labelled("SigmoidCrossEntropyLoss, rows and images", 'type: "SigmoidCrossEntropyLoss"', medium=[(2, 210), IMAGE])
labelled("HingeLoss", 'type: "HingeLoss"', 40, medium=[(5, 40), (5,)])
labelled("HingeLoss of three", 'type: "HingeLoss"', 3, small=[(5, 3), (5,)])
labelled("HingeLoss of 1000", 'type: "HingeLoss"', 1000, timing=[ROWS, ROWS[:1]])
labelled("HingeLoss of images", 'type: "HingeLoss" hinge_loss_param { norm: L2 }', 210, medium=[IMAGE, (2,)])
labelled("MultinomialLogisticLoss", 'type: "MultinomialLogisticLoss"', 210, positive=True, medium=[IMAGE, (2,)])
labelled("MultinomialLogisticLoss of three", 'type: "MultinomialLogisticLoss"', 3, positive=True, small=[(5, 3), (5,)])
SmoothL1Loss = cases_of("SmoothL1Loss", "smooth_l1_loss_param")
SmoothL1Loss("SmoothL1Loss", "", small=[ODD, ODD], medium=[(4, 6), (4, 6)], timing=[BATCH, BATCH])
SmoothL1Loss("SmoothL1Loss, weighted", "sigma: 1.5", small=[ODD] * 4, medium=[IMAGE] * 4)
SmoothL1Loss("SmoothL1Loss, weighted inside", "sigma: 3", medium=[(5, 8)] * 3)
# Caffe divides by d + 1e-4 where the derivative has d
ContrastiveLoss = cases_of("ContrastiveLoss", "contrastive_loss_param", labels=2, tolerance=3e-4)
ContrastiveLoss("ContrastiveLoss", "", small=[(9, 35), (9, 35), (9,)], timing=[ROWS, ROWS, ROWS[:1]])
ContrastiveLoss("ContrastiveLoss of margin 6", "margin: 6", medium=[(8, 20), (8, 20), (8,)])
ContrastiveLoss("ContrastiveLoss, legacy", "margin: 36 legacy_version: true", medium=[(8, 20), (8, 20), (8,)])

# -- scores along any axis, with labels that are ignored, and where the bottoms name their axes differently ---------

for _name, _axis, _shape, _labels in (
    ("rows", 1, (37, 10), (37,)),
    ("many classes", 1, (5, 1000), (5, 1)),
    ("pixels", 1, (2, 21, 5, 7), (2, 1, 5, 7)),
    ("pixels with plain labels", 1, (2, 21, 5, 7), (2, 5, 7)),
    ("planes of three axes", 1, (3, 6, 40), (3, 40)),
    ("rows of an image", 2, (2, 5, 4, 3), (2, 5, 3)),
    ("two classes", 1, (300, 2), (300,)),
):
    _along = f"softmax_param {{ axis: {_axis} }}"
    _scores: dict[str, Any] = {"classes": _shape[_axis], "edges": [_shape, _labels], "drawn": {0: normal(3)}}
    add(f"Softmax: {_name}", f'type: "Softmax" {_along}', edges=_shape, drawn={0: normal(3)})
    labelled(
        f"SoftmaxWithLoss of hopeless scores: {_name}", f"{LOSS} {_along}", **_scores | {"drawn": {0: normal(300)}}
    )
    for _tops in ("", 'top: "y0" top: "y1"'):
        for _settings in ("", "ignore_label: 1", "normalization: BATCH_SIZE"):
            labelled(
                f"SoftmaxWithLoss: {_name} {_tops} {_settings}",
                f"{LOSS} {_tops} {_along} loss_param {{ {_settings} }}",
                **_scores,
            )
        for _settings in ("", "top_k: 2", "ignore_label: 1"):
            labelled(
                f"Accuracy: {_name} {_tops} {_settings}",
                f'type: "Accuracy" {_tops} accuracy_param {{ axis: {_axis} {_settings} }}',
                **_scores,
            )
# Ties are misses.
labelled(
    "Accuracy of equal scores",
    'type: "Accuracy" accuracy_param { top_k: 2 }',
    5,
    edges=[(200, 5), (200,)],
    drawn={0: integers(0, 3)},
)


def fractions(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    return rng.choice([0.0, 0.25, 0.5, 1.0], shape)


def probabilities(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """Those of the first item are zero; the loss takes none below 1e-20."""
    return rng.random(shape) * (np.arange(shape[0]) > 0).reshape(-1, *[1] * (len(shape) - 1))


for _shapes in (
    [(5, 37), (5, 37)],
    [(2, 3, 7, 5), (2, 3, 7, 5)],
    [(2, 3, 7, 5), (2, 105)],
    [(2, 105), (2, 3, 7, 5)],
    [(3, 4000), (3, 4000)],
):
    add(f"EuclideanLoss: {_shapes}", 'type: "EuclideanLoss"', edges=_shapes)
    for _settings in ("", "ignore_label: 1", "ignore_label: 1 normalization: VALID"):
        add(
            f"SigmoidCrossEntropyLoss: {_shapes} {_settings}",
            f'type: "SigmoidCrossEntropyLoss" loss_param {{ {_settings} }}',
            edges=_shapes,
            drawn={0: normal(3), 1: fractions},
        )
for _shape, _classes in (((37, 10), 10), ((3, 4, 5, 2), 40), ((600, 7), 7)):
    for _norm in ("L1", "L2"):
        labelled(
            f"HingeLoss {_norm}: {_shape}",
            f'type: "HingeLoss" hinge_loss_param {{ norm: {_norm} }}',
            _classes,
            edges=[_shape, _shape[:1]],
        )
    labelled(
        f"MultinomialLogisticLoss: {_shape}",
        'type: "MultinomialLogisticLoss"',
        _classes,
        edges=[_shape, _shape[:1]],
        drawn={0: probabilities},
    )
for _shape in ((37, 5), (4, 70, 1, 1)):
    for _legacy in ("true", "false"):
        ContrastiveLoss(
            f"ContrastiveLoss: {_shape}, {_legacy}",
            f"margin: 3 legacy_version: {_legacy}",
            edges=[_shape, _shape, _shape[:1]],
        )
