"""Which convolutions have a BatchNorm behind them, whatever is fused, sliced or recomputed."""

import pytest

from layermem.backends.cuda import CudaDevice
from layermem.graph.net import Net
from layermem.graph.ops import FORWARD
from layermem.graph.slices import Cut, sliced_graph
from layermem.graph.train import Rule, train_graph
from layermem.ops import CONV_MOMENTS, Conv
from layermem.proto.read import read_net_text
from tests.nets import DATA, LOSS, conv, norm, relu

TWO = DATA + conv("a", "data", 8, 3) + norm("a") + relu("a") + conv("b", "a", 8, 3) + norm("b") + LOSS % "b"
BEHIND_RELU = DATA + conv("a", "data", 8, 3) + relu("a") + norm("a") + LOSS % "a"
AVERAGES = TWO.replace('type: "BatchNorm"', 'type: "BatchNorm" batch_norm_param { use_global_stats: true }')


class Apart(CudaDevice):
    fusions = CudaDevice.fusions - {CONV_MOMENTS}


@pytest.mark.parametrize("device", [CudaDevice, Apart])
@pytest.mark.parametrize("text, expected", [(TWO, True), (BEHIND_RELU, False), (AVERAGES, False)])
def test_the_record_of_a_convolution_says_so_in_every_step(text, expected, device):
    """With the fusion and without, in its recompute and in a slice."""

    def make(net):
        return train_graph(net, device(), Rule("SGD", 1))

    net = Net(read_net_text(text), 0)
    for graph in (make(net), sliced_graph(net, make, Cut.parse("a/2"), device())):
        ops = [op for op in graph.of_kind(FORWARD) if isinstance(op.record, Conv)]
        records = [each.record for op in ops for each in (op, op.recompute) if each is not None]
        assert records and all(record.before_norm is expected for record in records), graph
