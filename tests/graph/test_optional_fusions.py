"""The fusions that a step may do without, and the device for graphs that have none of them."""

from layermem.backends.base import get_device
from layermem.graph.net import Net
from layermem.graph.optional_fusions import OPTIONAL, fused_in, without_fusions
from layermem.graph.train import Rule, train_graph
from layermem.ops import CONV_MOMENTS, DGRAD_SUMS, MASKED_DGRAD
from layermem.proto.read import read_net_text
from tests.nets import DATA, LOSS, conv, norm, relu

ALL = DATA + conv("a", "data", 8, 3) + relu("a") + conv("b", "a", 8, 3) + norm("b") + conv("c", "b", 8, 3) + LOSS % "c"
PLAIN = DATA + LOSS % "data"


def graph_of(text, device):
    return train_graph(Net(read_net_text(text), 0), device, Rule("SGD", 1))


def test_a_graph_names_the_optional_fusions_that_it_has():
    assert fused_in(graph_of(ALL, get_device("cuda"))) == (MASKED_DGRAD, DGRAD_SUMS, CONV_MOMENTS)
    assert fused_in(graph_of(PLAIN, get_device("cuda"))) == ()
    for device in ("cpu", "reference"):
        assert fused_in(graph_of(ALL, get_device(device))) == ()


def test_without_them_the_device_is_the_same_and_has_all_other_fusions():
    device = get_device("cuda", precision="tf32")
    apart = without_fusions(device)
    assert apart.title == device.title and apart.fusions == device.fusions - OPTIONAL < device.fusions
    graph = graph_of(ALL, apart)
    assert fused_in(graph) == () and "a.relu_backward" in {op.name.replace("+a_relu", "") for op in graph.ops}
