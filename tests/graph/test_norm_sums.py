"""Which dgrads leave sums for backward of a BatchNorm, and what slices of the batch do without."""

import pytest

from layermem.backends.cuda import CudaDevice
from layermem.graph.net import Net
from layermem.graph.slices import Cut, sliced_graph
from layermem.graph.train import Rule, train_graph
from layermem.ops import DGRAD_SUMS, MASKED_DGRAD, NORM_OPERANDS
from layermem.proto.read import read_net_text
from layermem.utils.units import aligned
from tests.nets import DATA, LOSS, conv, norm, relu

SGD = Rule("SGD", 1)
SUM = 'layer {{ name: "s" type: "Eltwise" bottom: "{}" bottom: "{}" top: "s" }}'
ONE = DATA + conv("a", "data", 8, 3) + norm("a") + relu("a")
TWO = ONE + conv("b", "a", 8, 3) + norm("b") + conv("c", "b", 8, 3) + LOSS % "c"
RESIDUAL = DATA + conv("a", "data", 8, 3) + conv("b", "a", 8, 3) + norm("b") + SUM.format("a", "b") + relu("s")
ROWS = 4 * 6 * 5  # of 128: one unit


class Apart(CudaDevice):
    fusions = CudaDevice.fusions - {DGRAD_SUMS}


class Unmasked(CudaDevice):
    fusions = CudaDevice.fusions - {MASKED_DGRAD}


def net_of(text):
    return Net(read_net_text(text), 0)


def graph_of(text, device=None):
    return train_graph(net_of(text), device or CudaDevice(), SGD)


def sums(graph):
    """The layers of the ops that leave or read sums, in their order."""
    return [op.layers[0] for op in graph.ops if "norm_sums" in op.roles]


def test_a_dgrad_leaves_sums_that_the_batch_norm_before_it_reads():
    graph = graph_of(TWO)
    assert sums(graph) == ["c", "b_bn", "b", "a_bn"]
    maker, reader = (op for op in graph.ops if op.roles.get("norm_sums") == "b.norm_sums")
    assert maker.name == "b.dgrad" and "b.norm_sums" in maker.writes and "a" in maker.reads
    assert reader.layer_type == "BatchNormScale" and "b.norm_sums" in reader.reads
    assert graph.buffers["b.norm_sums"].nbytes == 4 * 2 * 8 * -(-ROWS // 128)


def test_a_relu_of_the_batch_norm_is_recomputed_from_factor_and_bias():
    last, first = (op for op in graph_of(TWO).ops if "norm_x" in op.roles)
    assert [role for role in NORM_OPERANDS if role in last.roles] == ["norm_x", "norm_mean", "norm_inv_std"]
    assert [role for role in NORM_OPERANDS if role in first.roles] == list(NORM_OPERANDS)


def test_a_relu_behind_a_sum_is_masked_by_the_same_dgrad():
    text = RESIDUAL + conv("c", "s", 8, 3) + LOSS % "c"
    (maker, _) = (op for op in graph_of(text).ops if "norm_sums" in op.roles)
    assert maker.name == "c.dgrad" and "bottom_mask" in maker.roles and "norm_factor" not in maker.roles
    assert sums(graph_of(text, Unmasked())) == []


def test_the_last_op_to_add_to_a_gradient_leaves_them():
    graph = graph_of(ONE + conv("c", "a", 8, 3) + conv("d", "a", 8, 3) + SUM.format("c", "d") + LOSS % "s")
    assert sums(graph) == ["c", "a_bn"]
    (maker, *_) = (op for op in graph.ops if "norm_sums" in op.roles)
    assert maker.accumulates == ("dx0",)


POOL = 'layer { name: "p" type: "Pooling" bottom: "a" top: "p" pooling_param { kernel_size: 2 } }'


@pytest.mark.parametrize(
    "text",
    [
        ONE + POOL + LOSS % "p",
        ONE + conv("b", "a", 8, 3).replace("kernel_size", "stride: 2 kernel_size") + LOSS % "b",
        (ONE + conv("b", "a", 8, 3) + LOSS % "b").replace('top: "a" }', 'top: "a" loss_weight: 1 }'),
    ],
    ids=["of a pooling", "of phases", "with a weight in the loss"],
)
def test_other_gradients_are_read_for_their_sums(text):
    assert sums(graph_of(text)) == []


def test_the_batch_norm_has_no_workspace_for_them():
    graphs = [graph_of(TWO, device) for device in (Apart(), CudaDevice())]
    before, after = (
        next(op for op in graph.ops if op.name.startswith("a_bn") and op.step == "backward") for graph in graphs
    )
    assert before.workspace_bytes == aligned(graphs[1].buffers["b.norm_sums"].nbytes) and after.workspace_bytes == 0
    assert sums(graphs[0]) == []


@pytest.mark.parametrize(
    "cut, left", [("a/2", ["c", "b_bn", "b", "a_bn"]), ("b/2", ["c", "b_bn"]), ("..c/2", []), ("c/2", ["b", "a_bn"])]
)
def test_slices_and_what_touches_them_do_without(cut, left):
    def make(net):
        return train_graph(net, CudaDevice(), SGD)

    graph = sliced_graph(net_of(TWO), make, Cut.parse(cut), CudaDevice())
    assert sums(graph) == left
    for op in graph.ops:
        needed = CudaDevice().workspace_bytes(op.record, op.step, op.roles.keys())
        assert op.workspace_bytes == needed and set(op.roles.values()) == set(op.touches)
