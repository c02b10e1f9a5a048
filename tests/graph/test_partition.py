"""The transform of ops into pieces, for any axis: where stages end."""

from layermem.backends.reference import ReferenceDevice
from layermem.graph.batch_norm_passes import in_two_passes
from layermem.graph.ops import FORWARD
from layermem.graph.partition import stages
from tests.graph.test_batch_norm_passes import FIRST, graph_of, names


def test_a_stage_ends_where_a_sum_is_read():
    graph = in_two_passes(graph_of(), 0, 99, ReferenceDevice())
    ops = [op for op in graph.of_kind(FORWARD) if op.layers and op.layers[0] != "data"][:6]
    assert [names(stage) for stage in stages(ops, lambda op: op.record.over_items(op.step))] == [
        ["conv1.forward", f"{FIRST}.statistics"],
        [f"{FIRST}.forward", "conv2.forward", "bn2.statistics"],
        ["bn2.forward"],
    ]
