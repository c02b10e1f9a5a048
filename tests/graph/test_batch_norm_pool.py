"""Which poolings run in the launches of the BatchNorm before them."""

import pytest

from layermem.backends.base import get_device
from layermem.backends.cuda import CudaDevice
from layermem.graph.net import Net
from layermem.graph.optional_fusions import fused_in
from layermem.graph.train import Rule, train_graph
from layermem.ops import BatchNormScale
from layermem.proto.read import read_net_text
from tests.nets import DATA, LOSS, conv, norm, relu

POOL = """layer { name: "pool" type: "Pooling" bottom: "a" top: "pool" pooling_param { kernel_size: 3 stride: 2 } }"""
NET = DATA + conv("a", "data", 8, 3) + norm("a") + relu("a") + POOL + conv("b", "pool", 8, 3) + LOSS % "b"
X = 4 * 8 * 6 * 5 * 4  # bytes of a
FUSED = "a_bn+a_scale+a_relu+pool"
LAST = "a" + 3 * "'"  # version of a that the pooling reads


class Apart(CudaDevice):
    fusions = CudaDevice.fusions - {"BatchNormScale+pool"}


def graph_of(text, device=None, **options):
    return train_graph(Net(read_net_text(text), 0), device or CudaDevice(), Rule("SGD", 1), **options)


def pooled(graph):
    """The ops of a BatchNorm that have a pooling."""
    return [op.name for op in graph.ops if isinstance(op.record, BatchNormScale) and op.record.pool is not None]


def test_a_pooling_behind_a_batch_norm_and_its_relu_is_one_op_with_them():
    graph = graph_of(NET)
    assert pooled(graph) == [f"{FUSED}.forward", f"{FUSED}.backward"]
    assert {"a", "pool", f"{FUSED}.argmax"} <= graph.buffers.keys()
    assert not graph.buffers.keys() & {LAST, f"{LAST}.diff"}
    forward, backward = (graph.by_name[name] for name in pooled(graph))
    assert f"{FUSED}.argmax" in forward.writes and f"{FUSED}.argmax" in forward.recompute.writes
    assert f"{FUSED}.argmax" not in forward.recompute.reads and f"{FUSED}.argmax" in backward.reads
    assert [(o.out, o.over) for o in backward.overlays] == [("a.diff", "a")] and forward.overlays == ()


def test_the_blob_between_is_neither_written_nor_read_nor_is_its_gradient():
    before, after = (sum(op.nbytes for op in graph_of(NET, device).ops) for device in (Apart(), CudaDevice()))
    assert before - after == 4 * X  # y of the BatchNorm and its dy, each written and read


def test_the_convolution_before_leaves_moments_and_the_one_behind_no_sums():
    graph = graph_of(NET)
    assert graph.by_name[f"{FUSED}.forward"].roles["moments"] == graph.by_name["a.forward"].roles["moments"]
    assert all("norm_sums" not in op.roles for op in graph.ops)


def test_two_blobs_are_gone_and_nothing_is_optional():
    before, after = graph_of(NET, Apart()), graph_of(NET)
    assert sum(b.nbytes for b in before.buffers.values()) - sum(b.nbytes for b in after.buffers.values()) == 2 * X
    assert fused_in(after) == fused_in(before)
    for device in ("cpu", "reference"):
        assert pooled(graph_of(NET, get_device(device))) == []


@pytest.mark.parametrize(
    "text, count",
    [
        (NET.replace(relu("a"), ""), 2),
        (NET.replace("kernel_size: 3 stride: 2", "pool: AVE kernel_size: 3 stride: 2"), 0),
        (NET.replace("kernel_size: 3 stride: 2", "pool: STOCHASTIC kernel_size: 3 stride: 2"), 0),
        (NET.replace('top: "pool"', 'top: "pool" top: "mask"', 1), 0),
        (NET.replace("num_output: 8", "num_output: 6"), 0),
        (NET.replace('bottom: "pool"', 'bottom: "a"', 1), 0),
        (NET.replace('type: "BatchNorm"', 'type: "BatchNorm" batch_norm_param { use_global_stats: true }'), 0),
        (NET.replace('"ReLU"', '"ReLU" relu_param { negative_slope: 0.1 }'), 0),
    ],
    ids=["without a ReLU", "AVE", "STOCHASTIC", "a mask", "6 channels", "read twice", "averages", "a slope"],
)
def test_maxima_of_quads_of_channels_that_nothing_else_reads_are(text, count):
    assert len(pooled(graph_of(text))) == count


def test_a_blob_that_is_an_output_is_not_fused_away():
    assert pooled(graph_of(NET, outputs=(LAST,))) == [] and pooled(graph_of(NET, keep=("a",))) == []
