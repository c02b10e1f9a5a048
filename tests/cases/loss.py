"""Reductions, scores and losses."""

from typing import Any

from tests.cases.base import BATCH, CLIP, IMAGE, ODD, PIXELS, ROWS, add, cases_of

Reduction, ArgMax = cases_of("Reduction"), cases_of("ArgMax")
for _operation in ("SUM", "MEAN", "ASUM", "SUMSQ"):
    for _axis in (0, 1, 2, 3):
        Reduction(
            f"Reduction {_operation} from axis {_axis}",
            f"operation: {_operation} axis: {_axis} coeff: 0.7",
            medium=IMAGE,
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
