"""Ranges of the layers of a net: what runs, what is fed, what is held."""

from itertools import pairwise

from layermem.backends.base import get_device
from layermem.graph.layer_ranges import (
    BackwardRange,
    LayerRange,
    diff_buffer,
    outside_blobs,
    range_graph,
    range_outputs,
)
from layermem.graph.net import Net
from layermem.graph.nodes import op_nodes
from layermem.graph.ops import BACKWARD, FORWARD, GRADIENT
from layermem.proto.read import read_net_text
from tests.nets import NETS

CPU = get_device("cpu")
NET = Net(read_net_text(NETS["chain"]), 0)
NAMES = [layer.name for layer in NET.layers]


def index(layer):
    return NAMES.index(layer)


def graph_of(first, last, backward=None, **more):
    layer_range = LayerRange(index(first), index(last) + 1, backward, **more)
    return range_graph(NET, CPU, layer_range, gradients=backward is not None)


def test_a_whole_net_is_the_forward_pass_and_a_hold_of_outputs_and_of_what_is_named():
    graph = graph_of("data", "loss", data=("conv1'", "pool1"))
    assert {op.kind for op in graph.ops} == {FORWARD}
    assert graph.ops[-1].name == "forward.hold" and graph.ops[-1].reads == ("conv1'", "pool1", "loss")
    assert graph.ops[-1].nbytes == 0


def test_blobs_from_before_a_range_are_fed():
    layer_range = LayerRange(index("pool1"), index("conv2_relu") + 1)
    assert outside_blobs(NET, layer_range) == ("conv1'",)
    graph = range_graph(NET, CPU, layer_range, gradients=False)
    assert [op.name for op in graph.ops][:2] == ["conv1'.input", "pool1.forward"]
    assert graph.ops[-1].reads == ("conv2'",)


def test_every_range_has_the_same_persistent_buffers():
    step = BackwardRange(0, len(NAMES))
    whole, part = graph_of("data", "loss", step), graph_of("pool1", "conv2", BackwardRange(0, index("conv2") + 1))
    assert [b.name for b in whole.persistent()] == [b.name for b in part.persistent()]
    assert sum(b.kind == GRADIENT for b in part.buffers.values()) == 6


def test_a_part_of_the_layers_runs_backward_from_a_gradient_that_is_fed():
    backward = BackwardRange(index("pool1"), index("conv2") + 1, fed=("conv2",))
    graph = graph_of("data", "loss", backward)
    run = [op.name for op in graph.ops if op.kind == BACKWARD]
    assert run[0] == "conv2.diff.input" and run[-1] == "backward.hold"
    assert {op.layer_name for op in graph.ops if op.kind == BACKWARD} == {"", "conv2", "pool1"}


def test_a_repeated_backward_leaves_the_gradients_of_parameters_out():
    graph = graph_of("data", "loss", BackwardRange(0, len(NAMES), data_only=True), copied_diffs=("pool1",))
    assert not [op for op in graph.ops if any(graph.buffers[b].kind == GRADIENT for b in op.touches)]
    before, copy = next((a, b) for a, b in pairwise(graph.ops) if b.name == "pool1.diff.output")
    assert "pool1.diff" in before.writes and copy.reads == ("pool1.diff",)


def test_the_diff_of_a_blob_is_that_of_its_oldest_version():
    step = BackwardRange(0, len(NAMES))
    fused = graph_of("data", "loss", step, diffs=("conv1",))
    apart = graph_of("data", "loss", step, diffs=("conv1",), unfused=("conv1",))
    assert NET.versions["conv1"] == ("conv1", "conv1'")
    assert diff_buffer(NET, "conv1", fused, step) == "conv1'.diff"  # a ReLU in the epilogue changes it in place
    assert diff_buffer(NET, "conv1", apart, step) == "conv1.diff" in apart.ops[-1].reads


def test_a_blob_that_is_only_silenced_counts_as_an_output():
    text = """layer { name: "a" type: "DummyData" top: "x" top: "y" dummy_data_param { shape { dim: 2 } } }
              layer { name: "s" type: "Silence" bottom: "x" }"""
    net = Net(read_net_text(text), 0)
    assert range_outputs(op_nodes(net)) == ["x", "y"]
