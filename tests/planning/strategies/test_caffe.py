"""`caffe`: data and diffs of all blobs at once."""

from layermem.graph.ops import BACKWARD, DATA, FORWARD, BufferOverlay
from layermem.planning.plan import INPLACE
from tests.planning.chains import UNIT, Planned, chain
from tests.schedule.small_graphs import buffer, graph, op


def test_it_takes_every_buffer_of_the_net_at_once():
    """5 data and 5 diffs; with 4 layers of w, h and g, 12 more."""
    assert Planned("caffe", chain(4)).units == 10
    assert Planned("caffe", chain(4, parameters=True)).units == 22


def test_a_budget_changes_nothing():
    assert Planned("caffe", chain(4), 1).plan == Planned("caffe", chain(4)).plan


def test_a_blob_that_the_net_names_twice_is_one():
    """Caffe's in-place layers, whose top has the name of their bottom; gradients share nothing with data."""
    net = graph(
        [buffer(name, DATA, UNIT) for name in ("x", "relu(x)", "y", "dx")],
        [
            op("x.forward", FORWARD, writes="x"),
            op("relu.forward", FORWARD, "x", "relu(x)", overlays=(BufferOverlay("relu(x)", "x", "inplace"),)),
            op("y.forward", FORWARD, "relu(x)", "y", overlays=(BufferOverlay("y", "relu(x)", "forward"),)),
            op("y.backward", BACKWARD, "y", "dx", overlays=(BufferOverlay("dx", "y", "gradient"),)),
        ],
    )
    planned = Planned("caffe", net)
    assert planned.plan.overlays == INPLACE and planned.units == 3
