"""The mean average precision of a test: areas by hand."""

import numpy as np
import pytest

from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.proto.read import read_net_text, read_solver_text
from layermem.solver.average_precision import AveragePrecision, average_precision
from layermem.solver.checks import check_solver

RIGHT = np.array([1.0, 0, 1, 0])  # precisions 1, 1/2, 2/3, 1/2 at recalls 1/4, 1/4, 1/2, 1/2 of four boxes


@pytest.mark.parametrize(
    "version, area",
    [("Integral", 1 / 4 + 2 / 3 / 4), ("MaxIntegral", 1 / 4 + 2 / 3 / 4), ("11point", (3 * 1 + 3 * 2 / 3) / 11)],
)
def test_the_area_under_the_curve(version, area):
    assert average_precision(RIGHT, 4, version) == pytest.approx(area)


def test_the_highest_precision_at_a_larger_recall_counts_in_max_integral():
    right = np.array([0.0, 1, 1])  # precisions 0, 1/2, 2/3
    assert average_precision(right, 2, "Integral") == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert average_precision(right, 2, "MaxIntegral") == pytest.approx(2 / 3)


def test_without_detections_or_true_boxes_it_is_zero():
    assert average_precision(np.zeros(0), 3, "Integral") == average_precision(RIGHT, 0, "Integral") == 0


def test_batches_are_collected_and_classes_averaged():
    text = """
        layer { name: "d" type: "Input" top: "d" input_param { shape { dim: [1, 1, 3, 7] } } }
        layer { name: "t" type: "Input" top: "t" input_param { shape { dim: [1, 1, 2, 8] } } }
        layer { name: "e" type: "DetectionEvaluate" bottom: "d" bottom: "t" top: "e"
                detection_evaluate_param { num_classes: 3 } }
    """
    precision = AveragePrecision(Net(read_net_text(text), 1))
    unused = [-1] * 5
    precision.add(
        {"e": np.array([[-1, 1, 2, -1, -1], [-1, 2, 1, -1, -1], [0, 1, 0.5, 0, 1], [0, 1, 0.9, 1, 0], unused])}
    )
    precision.add(
        {"e": np.array([[-1, 1, 0, -1, -1], [-1, 2, 0, -1, -1], [0, 1, 0.7, 0, 0], [0, 2, 0.1, 1, 0], unused])}
    )
    assert precision.tops == ("e",)
    assert precision.mean("e") == pytest.approx((1 / 2 + 1) / 2)  # class 1: right, wrong; one of a difficult box is out


@pytest.mark.parametrize(
    "field, words", [('ap_version: "12point"', "ap_version '12point'"), ('eval_type: "x"', "eval")]
)
def test_a_version_that_there_is_not_is_refused(field, words):
    net = 'net_param { layer { name: "d" type: "DummyData" top: "d" dummy_data_param { shape { dim: 1 } } } }'
    with pytest.raises(InputError, match=words):
        check_solver(read_solver_text(f"{net} base_lr: 1 lr_policy: 'fixed' {field}", "s"))
