"""What BVLC Caffe itself takes: the totals that its own accounting gives for the nets of Layrub's comparison."""

from functools import cache
from pathlib import Path

import pytest

from layermem.api import build_net
from layermem.graph import net as graph_net
from layermem.graph.caffe_bytes import beside, caffe_bytes
from layermem.proto.read import read_net_text

GIB = 2**30
PUBLISHED = {  # GiB, three significant digits: activations, state of BatchNorm and Scale, parameters, total
    "alexnet": (1.35, None, 0.68, 3.96),
    "vgg16": (3.63, None, 1.55, 9.18),
    "googlenet": (0.82, None, 0.15, 2.52),
    "resnet50": (1.96, 5.05, 0.29, 10.6),
    "resnet101": (2.98, 7.49, 0.50, 16.1),
    "resnet152": (4.24, 10.5, 0.67, 22.8),
    "resnet1001": (24.1, 58.2, 3.76, 129),
    "resnet1517": (35.9, 86.6, 5.67, 193),
}


def close(result: int, expected: float) -> bool:
    return float(f"{result / GIB:.3g}") == pytest.approx(expected, abs=0.0051 if expected < 10 else 0.051)


@cache
def built(path: Path, phase: str) -> graph_net.Net:
    return build_net(path / "train_val.prototxt", phase)


@pytest.mark.samples(6)
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_totals_of_known_nets(name, example_nets):
    result = caffe_bytes(built(example_nets / name, "TRAIN"))
    activations, norms, parameters, total = PUBLISHED[name]
    assert close(result.data, activations) and result.diff == result.data
    assert close(result.parameters, parameters)
    assert close(result.total, total)
    if norms is not None:  # beside them a pooling index and the loss: 25 MiB
        assert close(result.state - 25 * 2**20, norms)


def in_phase(text: str, phase: int = 0) -> graph_net.Net:
    return graph_net.Net(read_net_text(text), phase)


INPUT = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 dim: 4 dim: 4 } } }\n'
X = 4 * 2 * 3 * 4 * 4  # bytes


def test_a_blob_with_three_readers_has_three_more_diffs():
    sums = "".join(f'layer {{ name: "a{i}" type: "AbsVal" bottom: "x" top: "a{i}" }}\n' for i in range(3))
    result = caffe_bytes(in_phase(INPUT + sums))
    assert (result.data, result.diff, result.splits) == (4 * X, 4 * X, 3 * X)


def test_tops_in_place_reshaped_or_alone_take_nothing():
    text = (
        INPUT
        + """
        layer { name: "r" type: "ReLU" bottom: "x" top: "x" }
        layer { name: "f" type: "Flatten" bottom: "x" top: "f" }
        layer { name: "c" type: "Concat" bottom: "f" top: "c" }
        layer { name: "s" type: "Slice" bottom: "c" top: "s" }
    """
    )
    result = caffe_bytes(in_phase(text))
    assert (result.data, result.diff, result.total) == (X, X, 2 * X)


@pytest.mark.parametrize(
    ("layer", "state"),
    [
        ('type: "BatchNorm" top: "x"', 3 * X),
        ('type: "BatchNorm" top: "y"', 2 * X),
        ('type: "Scale" top: "x"', X),
        ('type: "Scale" top: "y"', 0),
        ('type: "Pooling" top: "y" pooling_param { pool: MAX kernel_size: 2 stride: 2 }', X // 4),
        ('type: "Pooling" top: "y" pooling_param { pool: AVE kernel_size: 2 stride: 2 }', 0),
        ('type: "Dropout" top: "x"', X),
        ('type: "LRN" top: "y"', X),
        ('type: "ReLU" top: "y"', 0),
    ],
)
def test_what_a_layer_keeps(layer, state):
    assert caffe_bytes(in_phase(INPUT + f'layer {{ name: "it" bottom: "x" {layer} }}')).state == state


def test_a_test_net_has_no_diffs_and_shares_its_parameters():
    text = (
        INPUT + 'layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 2 } }'
    )
    test = caffe_bytes(in_phase(text, 1))
    assert test.diff == test.splits == 0 and test.parameters == 4 * (2 * 48 + 2)
    assert beside(test) == X + 4 * 4


def test_adam_keeps_one_more_history():
    text = (
        INPUT + 'layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 2 } }'
    )
    net = in_phase(text)
    assert caffe_bytes(net, history_count=2).parameters == 4 * 4 * (2 * 48 + 2)
    assert caffe_bytes(net, history_count=1).parameters == 3 * 4 * (2 * 48 + 2)


@pytest.mark.samples(2)
@pytest.mark.parametrize(
    ("name", "phase", "printed"),
    [
        ("caffenet", "TEST", 343607608),  # in a log of Caffe
        ("caffenet", "TRAIN", 1757220868),
        ("googlenet", "TRAIN", 1795091980),
        ("alexnet", "TRAIN", 2129727492),
        ("vgg16", "TRAIN", 7373187332),
        ("resnet50", "TRAIN", 7418410116),
        ("resnet152", "TRAIN", 16204428420),
        ("resnet1517", "TRAIN", 138746262660),
    ],
)
def test_memory_required_for_data_is_what_caffe_prints(name, phase, printed, example_nets):
    assert built(example_nets / name, phase).activation_bytes == printed


@pytest.mark.parametrize(("steps", "items", "inputs", "cells"), [(1, 2, 3, 4), (35, 20, 650, 650)])
def test_an_lstm_takes_its_unrolled_net(steps, items, inputs, cells):
    """Per step and cell 20 values: 4 of W_xc x, twice, 1 of cont h, 4 of W_hc h, 4 gates, c, h, and h joined."""
    shapes = f"shape {{ dim: {steps} dim: {items} dim: {inputs} }} shape {{ dim: {steps} dim: {items} }}"
    result = caffe_bytes(
        in_phase(f"""
            layer {{ name: "in" type: "Input" top: "x" top: "cont" input_param {{ {shapes} }} }}
            layer {{ name: "it" type: "LSTM" bottom: "x" bottom: "cont" top: "y"
                    recurrent_param {{ num_output: {cells} }} }}
            layer {{ name: "loss" type: "Reduction" bottom: "y" top: "loss" loss_weight: 1 }}
        """)
    )
    cell, step = 4 * items * cells, 4 * items
    outside = 4 * (steps * items * (inputs + 1) + 1)  # x, cont and the loss
    # The slices of one step, of 4 W_xc x and of cont, are the arrays that they cut; h alone is that of h joined.
    inside = (20 * steps + 2) * cell + steps * step if steps > 1 else 17 * cell
    assert result.data == result.diff == inside + outside
    assert result.splits == 2 * (steps - 1) * cell + 2 * steps * step  # h and cont of each step have two readers
    assert result.state == 8 * steps * cell + cell  # the gates and their diffs, and the diff of c_T
    assert result.parameters == 3 * 4 * 4 * cells * (inputs + cells + 1)
