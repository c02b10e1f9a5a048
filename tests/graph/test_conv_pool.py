"""Which convolutions and poolings are one op, and what the other parts of a graph make of it."""

import pytest

from layermem.backends.cuda import CudaDevice, warpgroup
from layermem.graph.conv_pool import with_conv_pools
from layermem.graph.net import Net
from layermem.graph.ops import BACKWARD, FORWARD
from layermem.graph.train import Rule, forward_graph, train_graph
from layermem.ops import ConvPool
from layermem.planning.costs import model_costs
from layermem.proto.read import read_net_text
from layermem.solver.jobs import StepOptions, net_job
from tests.nets import DATA, LOSS, conv, relu

SGD = Rule("SGD", 1)
POOL = 'layer {{ name: "{0}" type: "Pooling" bottom: "{1}" top: "{0}" pooling_param {{ {2} }} }}'
TWO = "kernel_size: 2 stride: 2"


def pool(name, bottom, how=TWO):
    return POOL.format(name, bottom, how)


EVEN = DATA.replace("dim: 6 dim: 5", "dim: 6 dim: 6")
FIRST = EVEN + conv("a", "data", 8, 3) + relu("a")
NET = FIRST + conv("b", "a", 16, 3) + relu("b") + pool("p", "b")
WHOLE = NET + LOSS % "p"
VGG = FIRST + conv("b", "a", 16, 3) + relu("b") + pool("p", "b") + conv("c", "p", 16, 3) + relu("c") + pool("q", "c")


def net_of(text):
    return Net(read_net_text(text), 0)


def device(precision="fp32", storage="fp32"):
    return CudaDevice(precision=precision, storage=storage)


def apart(text, of=None):
    return train_graph(net_of(text), of or device(), SGD)


def graph_of(text, of=None):
    of = of or device()
    return with_conv_pools(apart(text, of), of)


def fused(graph):
    return [op for op in graph.ops if isinstance(op.record, ConvPool)]


def test_one_op_writes_what_is_pooled_and_the_index_alone():
    graph, both = graph_of(WHOLE), apart(WHOLE)
    (op,) = fused(graph)
    assert op.name == "b+b_relu+p.forward" and op.layers == ("b", "b_relu", "p") and op.kind == FORWARD
    assert set(op.reads) == {"a'", "b.w0", "b.w1"} and set(op.writes) == {"p", "p.argmax"}
    assert set(op.roles) == {"x0", "w0", "w1", "y0", "argmax"}
    assert "b'" in both.buffers and "b'" not in graph.buffers and "b'.diff" in graph.buffers
    conv1, pooling = both.by_name["b+b_relu.forward"], both.by_name["p.forward"]
    assert op.flops == conv1.flops + pooling.flops
    assert op.nbytes == conv1.nbytes + pooling.nbytes - 2 * both.buffers["b'"].nbytes
    assert op.recompute is not None and op.recompute.writes == op.writes
    assert len(graph.ops) == len(both.ops) - 1 and graph.fingerprint != both.fingerprint


def test_backward_is_that_of_both_as_ops_of_one_node():
    graph, both = graph_of(WHOLE), apart(WHOLE)
    (op,) = fused(graph)
    names = [each.name for each in graph.of_kind(BACKWARD)]
    assert names == [each.name for each in both.of_kind(BACKWARD)]
    of_node = [each.name for each in graph.of_kind(BACKWARD) if each.node == op.node]
    assert of_node == ["p.backward", "b+b_relu.wgrad", "b+b_relu.dgrad"]
    assert {each.layer_name for each in graph.ops if each.node == op.node} == {"b+b_relu+p"}


def test_several_of_them_and_those_of_a_forward_pass():
    assert [op.layers[0] for op in fused(graph_of((VGG + LOSS % "q").replace("dim: 6", "dim: 8")))] == ["b", "c"]
    of = device()
    graph = with_conv_pools(forward_graph(net_of(WHOLE), of), of)
    (op,) = fused(graph)
    assert op.writes == ("p",) and "argmax" not in op.roles


@pytest.mark.parametrize(
    "text",
    [
        FIRST + conv("b", "a", 16, 3) + pool("p", "b", "kernel_size: 3 stride: 2"),
        FIRST + conv("b", "a", 16, 3) + pool("p", "b", "kernel_size: 2 stride: 1"),
        FIRST + conv("b", "a", 16, 3) + pool("p", "b", "kernel_size: 2 stride: 2 pad: 1"),
        FIRST + conv("b", "a", 16, 3) + pool("p", "b", "kernel_size: 2 stride: 2 pool: AVE"),
        FIRST + conv("b", "a", 6, 3) + pool("p", "b"),
        FIRST + conv("b", "a", 16, 3) + pool("p", "b") + pool("q", "b").replace('top: "q"', 'top: "q" top: "mask"'),
        FIRST + conv("b", "a", 16, 3) + pool("p", "b").replace('top: "p"', 'top: "p" top: "mask"'),
        FIRST + conv("b", "a", 16, 3) + relu("b") + pool("p", "b") + conv("q", "b", 4, 3),
        FIRST + conv("b", "a", 8, 3, "").replace("kernel_size", "group: 8 kernel_size") + pool("p", "b"),
        EVEN + conv("b", "data", 16, 3) + relu("b") + pool("p", "b"),
    ],
    ids=[
        "windows that overlap",
        "of stride one",
        "padded",
        "a mean",
        "six outputs",
        "two poolings",
        "a mask",
        "another reader",
        "depthwise",
        "an image of three channels",
    ],
)
def test_others_are_two_ops(text):
    assert fused(graph_of(text + LOSS % "p")) == []


def test_windows_that_hang_over_the_border_are_pooled_apart_where_they_cost_more_than_they_spare():
    def at(size, channels):
        text = WHOLE.replace("dim: 6 dim: 6", f"dim: {size} dim: {size}")
        text = text.replace("num_output: 8", f"num_output: {channels}").replace("num_output: 16", "num_output: 64")
        return [len(fused(graph_of(text, device(each)))) for each in ("fp32", "tf32")]

    assert at(6, 8) == at(64, 512) == [1, 1]
    assert at(13, 64) == [0, 1] and at(13, 512) == [0, 0]  # products take less time in tf32, deep ones more


def test_a_blob_that_is_kept_or_handed_out_is_there():
    of, net = device(), net_of(WHOLE)
    for how in ({"keep": ["b"]}, {"outputs": ["b'"]}):
        assert fused(with_conv_pools(train_graph(net, of, SGD, **how), of)) == []
    assert len(fused(with_conv_pools(train_graph(net, of, SGD, outputs=["p"]), of))) == 1


@pytest.mark.parametrize(
    "precision, storage, is_fused",
    [
        ("fp32", "fp32", True),
        ("fp32x3", "fp32", True),
        ("tf32", "fp32", True),
        ("bf16", "fp32", True),
        ("fp32", "bf16", True),
        ("fp32", "fp16", True),
        ("tf32", "bf16", True),
        ("bf16", "bf16", True),
        ("bf16", "fp16", False),
        ("fp32x3", "bf16", False),
    ],
)
def test_precision_and_storage_say_whether_there_is_such_a_kernel(precision, storage, is_fused):
    graph = net_job(net_of(WHOLE), StepOptions(device=device(precision, storage), costs=model_costs("cuda"))).graphs[0]
    assert bool(fused(graph)) == is_fused
    for op in fused(graph):
        assert not op.passes and op.roles["x0"] == "a'"
        names = ("a'", "p", "b'.diff")  # the last one as the device stores it, though its blob is not there
        assert len({graph.buffers[name].tensor.dtype for name in names}) == 1


def test_an_image_in_fp32_is_pooled_apart_where_blobs_are_in_16_bits():
    text = EVEN.replace("dim: 4 dim: 3", "dim: 4 dim: 8") + conv("b", "data", 16, 3) + relu("b") + pool("p", "b")
    for storage, count in (("fp32", 1), ("bf16", 0)):
        graph = net_job(
            net_of(text + LOSS % "p"), StepOptions(device=device("bf16", storage), costs=model_costs("cuda"))
        ).graphs[0]
        assert len(fused(graph)) == count


def test_products_of_warpgroups_are_pooled_apart_on_every_gpu(monkeypatch):
    assert len(fused(graph_of(WHOLE, device("tf32")))) == 1
    monkeypatch.setattr(warpgroup, "PAYS", warpgroup.ALWAYS)
    assert fused(graph_of(WHOLE, device("tf32"))) == [] and len(fused(graph_of(WHOLE, device("fp32")))) == 1


@pytest.mark.parametrize(
    "cut, count", [("whole/2", 2), ("a..p/2", 2), ("b..p/4", 4), ("a../2", 2), ("a..b_relu/2", 0), ("p../2", 0)]
)
def test_slices_run_it_on_their_items_where_they_have_both_layers(cut, count):
    job = net_job(net_of(WHOLE), StepOptions(device=device("tf32"), costs=model_costs("cuda"))).with_slices(cut)
    found = fused(job.graphs[0])
    assert len(found) == count and all(op.record.conv.problem.n * count == 4 for op in found)
    assert all(op.record.part == op.record.conv.part == op.record.pool.part for op in found)
