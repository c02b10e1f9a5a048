"""Predictions as text and values."""

import itertools

import numpy as np
import pytest

import layermem
from layermem.errors import InputError
from layermem.report.predictions import AccuracyCount, Label, read_labels, score_lines, score_values, top_scores


def test_labels_are_names_or_synsets(tmp_path):
    path = tmp_path / "labels.txt"
    path.write_text("tabby cat\nn01440764 tench, Tinca tinca\n\n")
    assert read_labels(str(path), 2) == [Label("tabby cat"), Label("tench, Tinca tinca", "n01440764")]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a\nb\n", r"labels\.txt: has 2 names for the 3 classes of the net; write one for each"),
        ("a\n\nc\n", r"labels\.txt:2: is an empty line among the names"),
        ("", "has 0 names for the 3 classes"),
    ],
)
def test_other_numbers_of_labels_are_refused(tmp_path, text, match):
    path = tmp_path / "labels.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=match):
        read_labels(str(path), 3)


def test_the_highest_scores_come_first_and_of_equal_ones_the_first_class():
    scores = top_scores(
        np.array([0.1, 0.4, 0.1, 0.4]).reshape(4, 1, 1), 3, [Label(c, f"n{i}") for i, c in enumerate("abcd")]
    )
    assert [(each.index, each.label.name) for each in scores] == [(1, "b"), (3, "d"), (0, "a")]
    assert score_lines(scores) == ["  0.4000     1  b", "  0.4000     3  d", "  0.1000     0  a"]
    assert score_values(scores)[0] == {"class": 1, "score": 0.4, "name": "b", "synset": "n1"}
    assert score_lines(top_scores(np.array([2.0, 12.5]), 1)) == [" 12.5000     1"]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scores_that_are_no_numbers_are_refused(value):
    with pytest.raises(InputError, match="its scores are NaN or infinite; use other weights"):
        top_scores(np.array([0.5, value]), 1)


def test_accuracy_counts_items_with_a_label():
    accuracy = AccuracyCount(2)
    for label, row in ((0, [3, 2, 1]), (1, [3, 2, 1]), (2, [3, 2, 1]), (None, [1, 2, 3]), (0, [9, 0, 0])):
        accuracy.add(label, np.array(row, float))
    assert str(accuracy) == "accuracy 50.0 %, top-2 75.0 % of 4 items with a label"
    assert accuracy.values == {"items": 4, "first": 0.5, "top2": 0.75}


@pytest.mark.parametrize("shown", [1, 2, 3])
def test_accuracy_is_that_of_the_accuracy_layer_for_equal_scores_too(shown):
    rows = np.array([*itertools.product([0.0, 0.5], repeat=3)] * 3, np.float32)
    labels = np.repeat(np.arange(3), 8)
    accuracy = AccuracyCount(shown)
    for label, row in zip(labels, rows):
        accuracy.add(int(label), row.reshape(3, 1, 1))
    net = layermem.Net.from_text(f"""
        layer {{ name: "d" type: "Input" top: "x" top: "label"
                input_param {{ shape {{ dim: [24, 3] }} shape {{ dim: 24 }} }} }}
        layer {{ name: "first" type: "Accuracy" bottom: "x" bottom: "label" top: "first" }}
        layer {{ name: "among" type: "Accuracy" bottom: "x" bottom: "label" top: "among"
                accuracy_param {{ top_k: {shown} }} }}""")
    found = net.forward(x=rows, label=labels)
    assert accuracy.first == round(float(found["first"]) * 24) and accuracy.among == round(float(found["among"]) * 24)
    assert accuracy.first < accuracy.items
