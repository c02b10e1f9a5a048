"""The transform of ops into pieces, for any axis: where stages end, and which piece has what of a sum."""

from layermem.backends.reference import ReferenceDevice
from layermem.graph.batch_norm_passes import in_two_passes
from layermem.graph.ops import FORWARD
from layermem.graph.partition import Carries, stages
from layermem.ops import BatchSlice
from tests.graph.test_batch_norm_passes import FIRST, graph_of, names

INTERVALS = [BatchSlice(first, 2, 6) for first in (0, 2, 4)]


def test_a_stage_ends_where_a_sum_is_read():
    graph = in_two_passes(graph_of(), range(100), ReferenceDevice())
    ops = [op for op in graph.of_kind(FORWARD) if op.layers and op.layers[0] != "data"][:6]
    assert [names(stage) for stage in stages(ops, lambda op: op.record.over_items(op.step))] == [
        ["conv1.forward", f"{FIRST}.statistics"],
        [f"{FIRST}.forward", "conv2.forward", "bn2.statistics"],
        ["bn2.forward"],
    ]


def test_only_the_last_piece_has_the_result_of_a_sum():
    sums = Carries(["dw0"], {"dw0.carry": 64})
    assert [sums.has("dw0", interval) for interval in INTERVALS] == [False, False, True]
    assert all(sums.has("x0", interval) for interval in INTERVALS)


def test_the_first_piece_reads_what_a_sum_in_place_is_added_to():
    sums = Carries(["dw0", "dw1"], {"dw0.carry": 64, "dw1.carry": 8}, in_place=["dw0"], begins=["dw0"])
    assert [sums.has("dw0", interval) for interval in INTERVALS] == [True, False, True]
    assert [sums.has("dw1", interval) for interval in INTERVALS] == [False, False, True]


def test_the_last_piece_adds_to_results_and_each_one_to_what_is_no_sum():
    sums = Carries(["dw0", "dw1"], {"dw0.carry": 64, "dw1.carry": 8}, in_place=["dw0"], begins=["dw0"])
    added = [sums.accumulates(("dw0", "dw1", "dx0"), interval) for interval in INTERVALS]
    assert added == [["dx0"], ["dx0"], ["dw0", "dw1", "dx0", "dw0.carry"]]
