"""Graphs of other sizes are those that are built there, buffer by buffer and op by op."""

from dataclasses import replace

import pytest

from layermem.api import build_net, job_of
from layermem.backends.base import get_device
from layermem.graph.resized import Lines, NoLine, ResizedGraph
from layermem.ops import MAX_COUNT, Tensor

NETS = ["digits", "mnist", "resnet20", "googlenet", "lstm_lm", "squeezenet10", "unet", "ssd300", "siamese"]


def graph_of(net, size, device):
    path = f"prototxt/{net}/train_val.prototxt"
    built = build_net(path, "TRAIN", batch=size) if net != "lstm_lm" else build_net(path, "TRAIN")
    if net == "lstm_lm":
        built = build_net(path, "TRAIN", inputs=built.shapes_with_streams(size))
    return job_of(built, device=device).graphs[0]


@pytest.mark.exhaustive(2)
@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("net", NETS)
def test_a_resized_graph_is_the_one_that_is_built(net, device):
    resized = ResizedGraph(graph_of(net, 1, device), graph_of(net, 7, device), (1, 7), get_device(device))
    for size in (2, 13):
        built, graph = graph_of(net, size, device), resized.at(size)
        assert graph == built and graph.fingerprint == built.fingerprint and graph.warnings == built.warnings


def test_what_takes_whole_tiles_of_a_batch_is_on_no_line():
    small, large = (graph_of("resnet20", size, "cuda") for size in (1, 7))
    with pytest.raises(NoLine):  # partial sums for a BatchNorm, from its convolution to it
        ResizedGraph(small, large, (1, 7), get_device("cuda"))


def test_graphs_of_other_ops_and_larger_tensors_than_there_may_be_are_refused():
    small, large = (graph_of("digits", size, "cpu") for size in (1, 3))
    device = get_device("cpu")
    with pytest.raises(NoLine):
        ResizedGraph(replace(small, ops=small.ops[1:]), large, (1, 3), device)
    with pytest.raises(NoLine):
        ResizedGraph(small, large, (1, 3), device).at(MAX_COUNT)


def test_a_number_lies_on_a_line_of_whole_numbers_and_what_is_equal_stays():
    lines = Lines((2, 5))
    value, at = lines.between((Tensor((2, 3)), "same", 4), (Tensor((5, 3)), "same", 10))
    assert value == at(5) == (Tensor((5, 3)), "same", 10) and at(3) == (Tensor((3, 3)), "same", 6)
    assert lines.between(7, 7) == (7, None)
    for before, after in ((1, 3), (False, True), (1.0, 2.0), ("a", "b"), ((1,), (1, 2))):
        with pytest.raises(NoLine):
            lines.between(before, after)
