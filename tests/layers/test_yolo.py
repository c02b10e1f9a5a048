"""Layers of grid detectors: losses, gradients and boxes by hand, and refusals."""

import math

import numpy as np
import pytest

from layermem.backends.base import get_device
from layermem.backends.cpu.base import CpuCall, cpu_kernels
from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.proto.read import read_net_text
from tests.layers.harness import TEST, TRAIN, Run, backward, forward, layer_of

ANCHORS = [(1.0, 1.0), (2.0, 1.0)]
CELLS, CLASSES, LENGTH = 2, 3, 8
OBJECT, NOOBJECT, CLASS, COORD = 5.0, 1.0, 0.5, 2.0
WARM_UP_STEPS = 12800
SETTINGS = "num: 2 num_class: 3 biases: [1, 1, 2, 1] object_scale: 5 class_scale: 0.5 noobject_scale: 1 coord_scale: 2"


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def region(x, truth, settings="", *, phase=TEST, step=0):
    """A RegionLoss over one item of 2 x 2 cells; x is [row, column, anchor, number]."""
    layer = layer_of(
        f'type: "RegionLoss" region_loss_param {{ {SETTINGS} {settings} }}',
        (1, 2 * LENGTH, CELLS, CELLS),
        (1, len(truth), 5),
        phase=phase,
    )
    run = Run(layer, context={"seed": 1, "step": step})
    run.put("x0", np.moveaxis(x, (2, 3), (0, 1)))
    run.put("x1", np.array(truth))
    run.step(layer.forward())
    return run


def gradient(run):
    """dx0 as [row, column, anchor, number]."""
    dx = backward(run, ("dx0",), np.array(1.0)).arrays["dx0"]
    return np.moveaxis(dx.reshape(2, LENGTH, CELLS, CELLS), (0, 1), (2, 3))


def test_without_a_true_box_every_objectness_is_drawn_to_zero():
    run = region(np.zeros((2, 2, 2, LENGTH)), [(0, 0, 0, 0, 0)])
    expected = np.zeros((2, 2, 2, LENGTH))
    expected[..., 4] = NOOBJECT * 0.5 * 0.25
    np.testing.assert_allclose(gradient(run), expected)
    assert run.arrays["y0"] == pytest.approx(8 * 0.125**2)


def test_a_true_box_draws_the_prediction_of_the_anchor_of_its_shape():
    x = np.zeros((2, 2, 2, LENGTH))
    run = region(x, [(1, 0.75, 0.25, 1, 0.5), (0, 0, 0, 0, 0)])  # column 1, row 0; the shape of the second anchor
    d = gradient(run)
    # The prediction is the true box: x and y are 1/2, w and h the anchor's.
    third = CLASS / 3
    expected = [0, 0, 0, 0, -OBJECT * 0.5 * 0.25, third, third - CLASS, third]
    np.testing.assert_allclose(d[0, 1, 1], expected, atol=1e-7)
    # It overlaps the first anchor in its cell by 1/2, the second in the cell to the left by 1/3, others less.
    assert not d[0, 1, 0].any() and not d[0, 0, 1].any()
    assert d[1, 0, 0, 4] == pytest.approx(0.125)
    assert run.arrays["y0"] == pytest.approx(np.square(d).sum())


def test_without_rescore_small_boxes_count_for_more_and_objectness_is_drawn_to_one():
    x = np.random.default_rng(3).standard_normal((2, 2, 2, LENGTH))
    box = (2, 0.3, 0.9, 0.4, 0.5)
    d = gradient(region(x, [box], "rescore: 0"))[1, 0, 0]
    at, scale = x[1, 0, 0], COORD * (2 - 0.4 * 0.5)
    centers = [sigmoid(at[k]) for k in range(2)]
    for k, target in enumerate((0.3 * 2, 0.9 * 2 - 1)):
        assert d[k] == pytest.approx(scale * (centers[k] - target) * centers[k] * (1 - centers[k]))
        assert d[k + 2] == pytest.approx(scale * (at[k + 2] - math.log(box[k + 3] * 2 / 1)))
    o = sigmoid(at[4])
    assert d[4] == pytest.approx(OBJECT * (o - 1) * o * (1 - o))


def iou(a, b):
    """Intersection over union of boxes given by centre and size."""
    sides = [
        min(a[k] + a[k + 2] / 2, b[k] + b[k + 2] / 2) - max(a[k] - a[k + 2] / 2, b[k] - b[k + 2] / 2) for k in (0, 1)
    ]
    common = max(0, sides[0]) * max(0, sides[1])
    return common / (a[2] * a[3] + b[2] * b[3] - common)


def decoded(x, row, column, k):
    at, (width, height) = x[row, column, k], ANCHORS[k]
    return [
        (column + sigmoid(at[0])) / 2,
        (row + sigmoid(at[1])) / 2,
        math.exp(at[2]) * width / 2,
        math.exp(at[3]) * height / 2,
    ]


def objective(x, truth, held, warm):
    """The function whose derivative is the gradient: halved squares and the softmax loss; `held`: x for overlaps."""
    owners, total = {}, 0.0
    for label, *box in truth:
        column, row = int(box[0] * 2), int(box[1] * 2)
        shapes = [iou((0, 0, w / 2, h / 2), (0, 0, *box[2:])) for w, h in ANCHORS]
        owners[row, column, int(np.argmax(shapes))] = (label, box)
    for row, column, k in np.ndindex(2, 2, 2):
        at, box = x[row, column, k], decoded(held, row, column, k)
        o = sigmoid(at[4])
        if (row, column, k) not in owners:
            background = max(iou(box, each[1:]) for each in truth) <= 0.2
            total += background * NOOBJECT * o * o / 2
            if warm:
                total += 0.01 / 2 * sum((sigmoid(at[i]) - 0.5) ** 2 + at[i + 2] ** 2 for i in (0, 1))
            continue
        label, true_box = owners[row, column, k]
        targets = (true_box[0] * 2 - column, true_box[1] * 2 - row)
        for i in (0, 1):
            size = math.log(true_box[i + 2] * 2 / ANCHORS[k][i])
            total += COORD / 2 * ((sigmoid(at[i]) - targets[i]) ** 2 + (at[i + 2] - size) ** 2)
        total += OBJECT / 2 * (o - iou(box, true_box)) ** 2
        total += CLASS * (math.log(np.exp(at[5:]).sum()) - at[5 + label])
    return total


@pytest.mark.parametrize(
    "phase, step, warm", [(TEST, 0, False), (TRAIN, WARM_UP_STEPS - 1, True), (TRAIN, WARM_UP_STEPS, False)]
)
def test_the_gradient_is_the_derivative_of_the_objective_with_its_targets_held(phase, step, warm):
    x = np.random.default_rng(5).standard_normal((2, 2, 2, LENGTH)) * 0.7
    truth = [
        (0, 0.3, 0.9, 0.4, 0.5),
        (2, 0.8, 0.1, 0.9, 0.3),
        (1, 0.35, 0.95, 0.45, 0.4),
    ]  # the third takes the first's
    run = region(x, truth, phase=phase, step=step)
    d, numeric, epsilon = gradient(run), np.zeros_like(x), 1e-6
    for at in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[at] += epsilon
        down[at] -= epsilon
        numeric[at] = (objective(up, truth, x, warm) - objective(down, truth, x, warm)) / (2 * epsilon)
    np.testing.assert_allclose(d, numeric, atol=1e-6)
    assert run.arrays["y0"] == pytest.approx(np.square(d).sum())


def test_a_true_box_takes_predictions_by_their_size_where_anchors_do_not_count():
    x = np.zeros((2, 2, 2, LENGTH))
    x[0, 1, 0, 2:4] = math.log(2), 0  # the first anchor predicts the second's shape, the second another
    x[0, 1, 1, 2:4] = 1, 1
    d = gradient(region(x, [(1, 0.75, 0.25, 1, 0.5)], "bias_match: 0"))
    assert d[0, 1, 0, 5:].any() and not d[0, 1, 1, 5:].any()


@pytest.mark.parametrize(
    "bad, words",
    [
        ((0, 1, 0.5, 0.1, 0.1), "center at 1, 0.5 and of size 0.1"),
        ((0, 0.5, 0.5, -0.5, 0.5), "of size -0.5 x 0.5"),
        ((3, 0.5, 0.5, 0.5, 0.5), "reads a true box of label 3, but has 3 classes: 0 to 2; fix the data"),
    ],
)
@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_a_true_box_of_no_cell_or_class_is_refused(bad, words, device):
    with pytest.raises(InputError, match=words):
        if device == "reference":
            region(np.zeros((2, 2, 2, LENGTH)), [bad])
        else:
            on_cpu(bad)


def on_cpu(row):
    """Forward of the cpu kernel."""
    layer = layer_of(f'type: "RegionLoss" region_loss_param {{ {SETTINGS} }}', (1, 16, 2, 2), (1, 1, 5), phase=TEST)
    arrays = {
        "x0": np.zeros((1, 2, 2, 16), np.float32),
        "x1": np.array([[row]], np.float32),
        "y0": np.zeros(1, np.float32),
    }
    arrays["workspace"] = np.zeros(cpu_kernels.workspace_bytes(layer.record, "forward", tuple(arrays)), np.uint8)
    call = CpuCall.from_arrays(arrays, {}, layer="it")
    for launch in cpu_kernels.bind(layer.record, "forward", call):
        launch()


@pytest.mark.parametrize(
    "settings, shapes, words",
    [
        ("num: 3", None, "has 4 biases for num 3; give 6"),
        ("coords: 5", None, "coords 5; a box has 4"),
        ("thresh: -1", None, "thresh -1"),
        ("num_class: 4", None, "give N x 18 x S x S, 5 \\+ 4 classes for each of 2 anchors"),
        ("", [(1, 16, 2, 3), (1, 4, 5)], "in as many rows as columns"),
        ("", [(1, 16, 2, 2), (1, 4, 8)], "give 1 x R x 5"),
        ("", [(2, 16, 2, 2), (1, 4, 5)], "give 2 x R x 5"),
        ("biases: [0, 1]", None, "give the width and height of each anchor"),
    ],
)
def test_settings_and_shapes_that_do_not_go_together_are_refused(settings, shapes, words):
    merged = {"num": "num: 2", "num_class": "num_class: 3", "biases": "biases: [1, 1, 2, 1]"}
    merged[settings.split(":")[0]] = settings
    with pytest.raises(InputError, match=words):
        layer_of(
            f'type: "RegionLoss" region_loss_param {{ {" ".join(merged.values())} }}',
            *(shapes or [(1, 16, 2, 2), (1, 4, 5)]),
        )


def net_of(settings):
    inputs = "".join(
        f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ dim: {dims} }} }} }}\n'
        for name, dims in {"x": "[2, 16, 3, 3]", "truth": "[2, 4, 5]"}.items()
    )
    return read_net_text(
        f'{inputs}layer {{ name: "loss" type: "RegionLoss" bottom: "x" bottom: "truth" top: "loss" '
        f"region_loss_param {{ {settings} }} }}"
    )


@pytest.mark.parametrize("field", ['softmax_tree: "a"', 'class_map: "a"', "softmax: 0"])
def test_fields_of_another_fork_are_refused_by_name(field):
    with pytest.raises(InputError, match=f"{field.split(':')[0]}'.* fork of Caffe, and it is not obeyed here"):
        net_of(f"{SETTINGS} {field}")


def test_cuda_refuses_the_loss_by_name_before_anything_runs():
    net = Net(net_of(f"{SETTINGS} side: 13 softmax: 1 jitter: 0.2 absolute: 1 random: 1"), 0)
    cpu, cuda = get_device("cpu"), get_device("cuda")
    net.check_runnable(cpu.name, cpu.implements)
    with pytest.raises(InputError, match=r":3: layer 'loss' has type 'RegionLoss', for which device cuda has no"):
        net.check_runnable(cuda.name, cuda.implements)


# -- Yolov3 ------------------------------------------------------------------------------------------------------------

V3_ANCHORS = [(10.0, 10.0), (20.0, 10.0), (40.0, 40.0)]  # of 2 x 2 cells of 10 pixels; the third is of another grid


def cross_entropy(p, target):
    return -target * math.log(p) - (1 - target) * math.log(1 - p)


def v3_objective(x, truth, held, logistic):
    """The function whose derivative is the gradient; `held`: x for overlaps."""
    cost = (lambda p, target: (p - target) ** 2 / 2) if logistic else cross_entropy
    owners, total = {}, 0.0
    for label, *box in truth:
        shapes = [iou((0, 0, w / 20, h / 20), (0, 0, *box[2:])) for w, h in V3_ANCHORS]
        best = int(np.argmax(shapes))
        if best < 2:
            owners.setdefault((int(box[1] * 2), int(box[0] * 2), best), []).append((label, box))
    for row, column, k in np.ndindex(2, 2, 2):
        at, box = x[row, column, k], decoded(held, row, column, k)
        values = [sigmoid(v) for v in at]
        if (row, column, k) not in owners:
            total += (max(iou(box, each[1:]) for each in truth) <= 0.2) * cost(values[4], 0)
            continue
        labels = {label for label, _ in owners[row, column, k]}
        true_box = owners[row, column, k][-1][1]
        scale = COORD * (2 - true_box[2] * true_box[3])
        for i, cell in ((0, column), (1, row)):
            size = math.log(true_box[i + 2] * 20 / V3_ANCHORS[k][i])
            total += scale * (cost(values[i], true_box[i] * 2 - cell) + (at[i + 2] - size) ** 2 / 2)
        total += (OBJECT if logistic else 1) * cost(values[4], 1)
        total += CLASS * sum(cost(values[5 + c], c in labels) for c in range(CLASSES))
    return total


@pytest.mark.parametrize("logistic", [False, True])
def test_the_gradient_of_version_3_is_the_derivative_of_cross_entropies_or_of_squares(logistic):
    x = np.random.default_rng(6).standard_normal((2, 2, 2, LENGTH)) * 0.7
    truth = [(0, 0.3, 0.9, 0.4, 0.5), (1, 0.35, 0.95, 0.45, 0.4), (2, 0.8, 0.1, 0.9, 0.3), (0, 0.7, 0.6, 0.99, 0.98)]
    layer = layer_of(
        'type: "Yolov3" yolov3_param { num: 2 num_class: 3 biases: [10, 10, 20, 10, 40, 40] mask: [0, 1] '
        "anchors_scale: 10 object_scale: 5 class_scale: 0.5 coord_scale: 2 "
        f"use_logic_gradient: {str(logistic).lower()} }}",
        (1, 16, 2, 2),
        (1, 4, 5),
    )
    run = forward(layer, np.moveaxis(x, (2, 3), (0, 1)), np.array(truth))
    d, numeric, epsilon = gradient(run), np.zeros_like(x), 1e-6
    for at in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[at] += epsilon
        down[at] -= epsilon
        sides = [v3_objective(each, truth, x, logistic) for each in (up, down)]
        numeric[at] = (sides[0] - sides[1]) / (2 * epsilon)
    np.testing.assert_allclose(d, numeric, atol=1e-6)
    values = 1 / (1 + np.exp(-x))
    slopes = values * (1 - values)
    slopes[..., 2:4] = 1
    assert run.arrays["y0"] == pytest.approx(np.square(d / slopes if logistic else d).sum())


@pytest.mark.parametrize(
    "settings, words",
    [
        ("mask: [0, 2]", "has mask 2, but biases of 2 anchors: use 0 to 1"),
        ("mask: 0", "has 1 masks for num 2"),
        ("mask: [0, 1] anchors_scale: 0", "anchors_scale 0"),
    ],
)
def test_masks_that_name_no_anchor_are_refused(settings, words):
    with pytest.raises(InputError, match=words):
        layer_of(
            f'type: "Yolov3" yolov3_param {{ num: 2 num_class: 3 biases: [9, 9, 9, 8] {settings} }}',
            (1, 16, 2, 2),
            (1, 4, 5),
        )


# -- detections --------------------------------------------------------------------------------------------------------


def logit(p):
    return math.log(p / (1 - p))


def grid(items=1, side=1, predictions=()):
    """Predictions of one anchor and 2 classes, objectness near 0 but for (item, row, column, numbers)."""
    x = np.zeros((items, 7, side, side))
    x[:, 4] = -20
    for item, row, column, numbers in predictions:
        x[item, :, row, column] = numbers
    return x


def v3(*xs, settings="biases: [16, 8, 8, 8] mask: [1, 0] anchors_scale: [8, 4]"):
    layer = layer_of(
        'type: "Yolov3DetectionOutput" yolov3_detection_output_param { num_classes: 2 num_box: 1 '
        f"confidence_threshold: 0.1 {settings} }}",
        *(x.shape for x in xs),
    )
    return forward(layer, *xs).arrays["y0"][0, 0]


def test_boxes_of_version_3_are_those_of_their_grids_by_score():
    low = grid(predictions=[(0, 0, 0, (0, 0, 0, math.log(0.5), logit(0.5), logit(0.8), logit(0.4)))])
    high = grid(side=2, predictions=[(0, 1, 0, (logit(0.25), 0, 0, 0, logit(0.9), -9, logit(0.7)))])
    rows = v3(low, high)
    assert rows.shape == (1 + 4, 7)
    # Grid 0 has anchor 1, 8 x 8 of 8 pixels: 1 x 0.5 about the center.  Grid 1 has anchor 0, 16 x 8 of 8 pixels.
    np.testing.assert_allclose(rows[0], [0, 2, 0.63, 0.125 - 1, 0.75 - 0.5, 0.125 + 1, 0.75 + 0.5], rtol=1e-5)
    np.testing.assert_allclose(rows[1], [0, 1, 0.4, 0, 0.25, 1, 0.75], rtol=1e-5, atol=1e-6)
    assert (rows[2:] == -1).all()  # unused


def test_a_better_box_of_any_class_suppresses_by_the_threshold_in_its_item_only():
    same = [(n, 0, 0, (0, 0, 0, 0, logit(0.9 - 0.1 * n), 3, -3)) for n in (0, 1)]
    other = [(0, 1, 0, (0, -20, 0, math.log(2), logit(0.5), -3, 3))]  # of class 2
    low, high = grid(2, 1, same), grid(2, 2, other)
    settings = "biases: [8, 8, 8, 4] mask: [0, 1] anchors_scale: [8, 4]"
    # Boxes: 1 x 1 about (1/2, 1/2); 1 x 1 about (1/4, 1/2): they overlap by 3/5.
    assert v3(low, high, settings=f"{settings} nms_threshold: 0.59")[:, 0].tolist() == [0, 1] + [-1] * 8
    assert v3(low, high, settings=f"{settings} nms_threshold: 0.61")[:, :2].tolist()[:3] == [[0, 1], [0, 2], [1, 1]]


def test_scores_of_version_2_are_shares_of_a_softmax_and_anchors_are_in_cells():
    x = grid(side=2, predictions=[(0, 0, 1, (0, 0, 0, 0, logit(0.5), math.log(3), 0))])
    layer = layer_of(
        'type: "YoloDetectionOutput" yolo_detection_output_param { num_classes: 2 num_box: 1 '
        "biases: [1, 0.5] confidence_threshold: 0.375 }",
        x.shape,
    )
    rows = forward(layer, x).arrays["y0"][0, 0]
    np.testing.assert_allclose(rows[0], [0, 1, 0.375, 0.5, 0.125, 1, 0.375], rtol=1e-6)
    assert (rows[1:] == -1).all()


@pytest.mark.parametrize(
    "settings, words",
    [
        ("biases: [8, 8] mask: [0, 1] anchors_scale: [8, 4]", "has mask 1, but biases of 1 anchors"),
        ("biases: [8, 8] mask: 0 anchors_scale: [8, 4]", "has 1 masks; give num_box, 1, for each of its 2"),
        ("biases: [8, 8] mask: [0, 0] anchors_scale: 8", "has 1 anchors_scale"),
        ("biases: [8, 8] mask: [0, 0] anchors_scale: [8, 4] mask_group_num: 3", "mask_group_num 3 and 2 bottoms"),
        ("biases: [8, 8] mask: [0, 0] anchors_scale: [8, 4] nms_threshold: 2", "nms_threshold 2"),
    ],
)
def test_grids_whose_settings_do_not_go_together_are_refused(settings, words):
    with pytest.raises(InputError, match=words):
        v3(grid(), grid(side=2), settings=settings)
