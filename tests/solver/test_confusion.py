"""Which classes are taken for which: counts by hand, of both layers that compare, and by the command."""

import csv

import numpy as np
import pytest

from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.proto.read import read_net_text
from layermem.proto.schema import TEST
from layermem.solver.confusion import Confusion

SHAPES = (
    'layer {{ name: "in" type: "Input" top: "x" top: "t" input_param {{ shape {{ dim: {x} }} shape {{ dim: {t} }} }} }}'
)
ACCURACY = 'layer { name: "right" type: "Accuracy" bottom: "x" bottom: "t" top: "right" accuracy_param { %s } }'
LOSS = 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "x" bottom: "t" top: "loss" %s }'


def confusion(layers, x=(4, 3), t=(4,)):
    text = SHAPES.format(x=list(x), t=list(t)) + layers
    return Confusion(Net(read_net_text(text), TEST))


def scores(taken, classes=3):
    return np.eye(classes, dtype=np.float32)[taken]


@pytest.mark.parametrize("layers", [ACCURACY % "", LOSS % "", LOSS % "" + ACCURACY % ""])
def test_the_counts_are_those_of_the_items_by_class(layers):
    counts = confusion(layers)
    assert counts.blobs == ("x", "t")
    counts.add({"x": scores([0, 1, 1, 2]), "t": np.float32([0, 0, 1, 1])})
    counts.add({"x": scores([1, 1, 1, 0]), "t": np.float32([0, 0, 1, -1])})
    assert counts.matrix.tolist() == [[1, 3, 0], [0, 2, 1], [0, 0, 0]]
    assert counts.values()["class_accuracy"] == [0.25, pytest.approx(2 / 3), None]
    assert counts.rows(["a", "b", "c"]) == [
        ["a", "4", "1", "25.0%", "b (3)"],
        ["b", "3", "2", "66.7%", "c (1)"],
        ["c", "0", "0", "", ""],
    ]
    lines = [*csv.reader(counts.csv(["a", "b", "c"]).decode().splitlines())]
    assert lines == [["true", "a", "b", "c"], ["a", "1", "3", "0"], ["b", "0", "2", "1"], ["c", "0", "0", "0"]]


@pytest.mark.parametrize("layers", [ACCURACY % "ignore_label: 1", LOSS % "loss_param { ignore_label: 1 }"])
def test_an_ignored_label_does_not_count(layers):
    counts = confusion(layers)
    counts.add({"x": scores([0, 1, 1, 2]), "t": np.float32([0, 0, 1, 1])})
    assert counts.matrix.tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 0]]


def test_labels_of_places_are_compared_place_by_place():
    counts = confusion(ACCURACY % "", (2, 3, 1, 2), (2, 1, 2))
    x = np.moveaxis(scores([[0, 1], [2, 2]]), -1, 1)[:, :, None]
    counts.add({"x": x, "t": np.float32([[[0, 0]], [[2, 1]]])})
    assert counts.matrix.tolist() == [[1, 1, 0], [0, 0, 1], [0, 0, 1]]


def test_a_net_without_labels_has_nothing_to_compare():
    with pytest.raises(InputError, match="has no Accuracy and no SoftmaxWithLoss layer, so it has no classes"):
        confusion('layer { name: "s" type: "Softmax" bottom: "x" top: "y" }')
