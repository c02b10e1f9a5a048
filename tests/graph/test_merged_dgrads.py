"""Which data gradients are one op, and what the other parts of a graph make of it."""

import pytest

from layermem.backends.cuda import CudaDevice
from layermem.graph.net import Net
from layermem.graph.ops import BACKWARD
from layermem.graph.slices import Cut, sliced_graph
from layermem.graph.train import Rule, train_graph
from layermem.ops import MERGED_DGRADS, MergedDgrads
from layermem.proto.read import read_net_text
from tests.nets import DATA, LOSS, conv, norm, relu

SGD = Rule("SGD", 1)
ONE = DATA + conv("a", "data", 8, 3) + relu("a")
SUM = 'layer {{ name: "s" type: "Eltwise" {} top: "s" }}'


def total(*blobs):
    return SUM.format(" ".join(f'bottom: "{blob}"' for blob in blobs)) + LOSS % "s"


def strided(text):
    return text.replace("kernel_size", "stride: 2 kernel_size")


def branch(name, bottom):
    return conv(name, bottom, 8, 1) + norm(name)


BLOCK = ONE + conv("p", "a", 16, 1) + norm("p") + conv("b", "a", 8, 1) + norm("b") + relu("b") + conv("c", "b", 16, 1)
TWO = BLOCK + total("p", "c")


def net_of(text):
    return Net(read_net_text(text), 0)


def device(precision="tf32", storage="fp32"):
    return CudaDevice(precision=precision, storage=storage)


def graph_of(text, of=None):
    return train_graph(net_of(text), of or device(), SGD)


def merged(graph):
    """The layers of each such op."""
    return [(op.layers[0], op.roles["first_w"].partition(".")[0]) for op in graph.ops if "first_w" in op.roles]


def test_two_convolutions_of_one_blob_write_its_gradient_once():
    graph = graph_of(TWO)
    assert merged(graph) == [("p", "b")]
    (op,) = (op for op in graph.ops if isinstance(op.record, MergedDgrads))
    assert op.name == "p.dgrad" and op.writes == ("a'.diff",) and not op.accumulates
    assert set(op.reads) == {"p.diff", "p.w0", "b.diff", "b.w0", "a+a_relu.mask"}
    assert not any(other.name == "b.dgrad" for other in graph.ops)
    apart = {op.name: op for op in graph_of(TWO, device("fp32")).ops}
    assert op.flops == apart["p.dgrad"].flops + apart["b.dgrad"].flops
    more = 2 * graph.buffers["a'.diff"].nbytes  # what one of two writes, the other one reads
    assert op.nbytes == apart["p.dgrad"].nbytes + apart["b.dgrad"].nbytes - more


def test_weights_are_updated_when_both_have_been_read():
    names = [op.name for op in graph_of(TWO).ops]
    assert names.index("b.w0.update") > names.index("p.dgrad")


def test_three_of_them_are_two_that_run_last_in_pairs():
    text = ONE + conv("b", "a", 8, 1) + conv("c", "a", 8, 1) + conv("d", "a", 8, 1)
    graph = graph_of(text + total("b", "c", "d"))
    assert merged(graph) == [("b", "c")]
    (op,) = (op for op in graph.ops if "first_w" in op.roles)
    assert op.accumulates == ("dx0",) and op.updates == ("a'.diff",)
    four = graph_of(text + conv("e", "a", 8, 1) + total("b", "c", "d", "e"))
    assert merged(four) == [("d", "e"), ("b", "c")]


POOL = 'layer { name: "q" type: "Pooling" bottom: "a" top: "q" pooling_param { kernel_size: 1 } }'


@pytest.mark.parametrize(
    "text",
    [
        ONE + branch("b", "a") + POOL + branch("c", "a") + total("b", "q", "c"),
        ONE + strided(branch("b", "a")) + branch("c", "a") + strided(branch("d", "c")) + total("b", "d"),
        ONE + branch("b", "a").replace("kernel_size", "group: 2 kernel_size") + branch("c", "a") + total("b", "c"),
        DATA + branch("b", "data") + branch("c", "data") + total("b", "c"),
        ONE + conv("b", "a", 8, 1) + conv("c", "a", 8, 1) + total("b", "c"),
    ],
    ids=["another op adds between", "of other strides", "of groups", "of data", "a gradient that is passed on"],
)
def test_other_gradients_are_added_by_two_ops(text):
    assert merged(graph_of(text)) == []


@pytest.mark.parametrize(
    "precision, storage, is_merged",
    [
        ("tf32", "fp32", True),
        ("bf16", "fp32", True),
        ("bf16", "bf16", True),
        ("bf16", "fp16", False),
        ("tf32", "bf16", False),
        ("fp32", "fp32", False),
        ("fp32x3", "fp32", False),
    ],
)
def test_precision_and_storage_say_whether_there_is_such_a_kernel(precision, storage, is_merged):
    assert (MERGED_DGRADS in device(precision, storage).fusions) == is_merged
    assert bool(merged(graph_of(TWO, device(precision, storage)))) == is_merged


def test_blobs_that_are_widened_are_not_merged_since_both_sums_would_be_rounded_at_once():
    odd = BLOCK.replace("num_output: 16", "num_output: 12", 1) + conv("e", "c", 12, 1) + total("p", "e")
    assert merged(graph_of(odd, device("bf16"))) == [("p", "b")]
    assert merged(graph_of(odd, device("bf16", "bf16"))) == []


@pytest.mark.parametrize("cut", ["a/2", "p/2", "p..c/2", "b..c/2", "whole/2"])
def test_slices_run_it_on_their_items(cut):
    of = device()

    def make(net):
        return train_graph(net, of, SGD)

    graph = sliced_graph(net_of(TWO), make, Cut.parse(cut), of)
    found = [op for op in graph.of_kind(BACKWARD) if "first_w" in op.roles]
    assert len(found) == (2 if cut in ("a/2", "whole/2") else 1)  # with the layer that makes the blob
    for op in found:
        assert set(op.roles.values()) == set(op.touches)
        assert isinstance(op.record, MergedDgrads) and op.record.problem.n * len(found) == 4
