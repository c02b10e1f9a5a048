"""Which convolutions leave moments for a BatchNorm, and what slices of the batch do without."""

import pytest

from layermem.backends.cuda import CudaDevice
from layermem.graph.net import Net
from layermem.graph.ops import FORWARD
from layermem.graph.slices import Cut, sliced_graph
from layermem.graph.train import Rule, forward_graph, train_graph
from layermem.ops import CONV_MOMENTS
from layermem.proto.read import read_net_text
from tests.nets import DATA, LOSS, NETS, conv, norm, relu

SGD = Rule("SGD", 1)
TWO = DATA + conv("a", "data", 8, 3) + norm("a") + relu("a") + conv("b", "a", 8, 3) + norm("b") + LOSS % "b"
ROWS = 4 * 6 * 5  # of 128: one unit


class Apart(CudaDevice):
    fusions = CudaDevice.fusions - {CONV_MOMENTS}


def net_of(text):
    return Net(read_net_text(text), 0)


def graph_of(text, device=None):
    return train_graph(net_of(text), device or CudaDevice(), SGD)


def moments(graph):
    return {op.name: op.roles["moments"] for op in graph.ops if "moments" in op.roles}


def test_a_convolution_leaves_moments_that_the_batch_norm_behind_it_reads():
    graph = graph_of(TWO)
    assert list(moments(graph).values()) == ["a.moments"] * 2 + ["b.moments"] * 2
    maker, reader = (op for op in graph.ops if op.roles.get("moments") == "a.moments")
    assert maker.name == "a.forward" and "a.moments" in maker.writes
    assert reader.layer_type == "BatchNormScale" and "a.moments" in reader.reads
    assert graph.buffers["a.moments"].nbytes == 4 * 2 * 8 * -(-ROWS // 128)


def test_neither_op_needs_them_when_it_runs_again():
    for op in graph_of(TWO).of_kind(FORWARD):
        assert op.recompute is None or "moments" not in op.recompute.roles


def test_the_batch_norm_has_no_workspace_for_them():
    graphs = [graph_of(TWO, device) for device in (Apart(), CudaDevice())]
    before, after = (next(op for op in graph.ops if op.layer_type == "BatchNormScale") for graph in graphs)
    assert before.workspace_bytes - after.workspace_bytes == graphs[1].buffers["a.moments"].nbytes
    assert not moments(graphs[0])


POOL = 'layer { name: "p" type: "Pooling" bottom: "a" top: "p" pooling_param { kernel_size: 2 } }'


@pytest.mark.parametrize(
    "text",
    [
        DATA + conv("a", "data", 8, 3) + relu("a") + norm("a") + LOSS % "a",
        DATA + conv("a", "data", 8, 3) + POOL + norm("p") + LOSS % "p",
        TWO.replace('type: "BatchNorm"', 'type: "BatchNorm" batch_norm_param { use_global_stats: true }'),
    ],
    ids=["of a ReLU", "of a pooling", "averages"],
)
def test_other_inputs_are_read_for_their_statistics(text):
    assert not moments(graph_of(text))


def test_a_test_by_averages_has_none_and_one_by_the_batch_has():
    text = TWO.replace('type: "BatchNorm"', 'type: "BatchNorm" batch_norm_param { use_global_stats: false }')
    assert moments(forward_graph(net_of(text), CudaDevice()))
    assert not moments(forward_graph(Net(read_net_text(TWO), 1), CudaDevice()))


@pytest.mark.parametrize("cut, left", [("a/2", ["b.moments"]), ("..b/2", []), ("b../2", ["a.moments"])])
def test_slices_and_what_touches_them_do_without(cut, left):
    def make(net):
        return train_graph(net, CudaDevice(), SGD)

    graph = sliced_graph(net_of(TWO), make, Cut.parse(cut), CudaDevice())
    assert list(dict.fromkeys(moments(graph).values())) == left
    assert {name for name in graph.buffers if name.endswith(".moments")} == set(left)
    for op in graph.ops:
        needed = CudaDevice().workspace_bytes(op.record, op.step, op.roles.keys())
        assert op.workspace_bytes == needed and set(op.roles.values()) == set(op.touches)


def test_nets_of_the_tests_have_them():
    assert moments(graph_of(NETS["residual"]))
