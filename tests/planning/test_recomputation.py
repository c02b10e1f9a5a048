"""From segments to the order of a plan, written out by hand for a chain of four layers (chains.py)."""

from dataclasses import replace

import pytest

from layermem.graph.ops import FORWARD, STASH
from layermem.planning.hints import Hints
from layermem.planning.plan import INTRA, Plan, program_order
from layermem.planning.recomputation import (
    forward_ops,
    matches,
    output_bytes,
    recompute_seconds,
    seconds_again,
    segments_to_plan,
)
from tests.planning.chains import UNIT, a_second_each, chain
from tests.schedule.small_graphs import buffer, graph, op, repeatable

NET = chain(4)
FEED, F1, F2, F3, F4 = forward_ops(NET)


def order(segments, **options):
    """Letters and numbers of the ops that run after the forward pass: "s b4 b3 f1 b2 b1"."""
    plan = segments_to_plan(NET, segments, "by hand", **options)
    assert plan.order[:5] == ("feed.forward", "f1.forward", "f2.forward", "f3.forward", "f4.forward")
    assert (plan.strategy, dict(plan.decisions), plan.overlays) == ("by hand", {}, INTRA)
    return " ".join(name.split(".")[0] for name in plan.order[5:])


@pytest.mark.parametrize(
    ("segments", "backward"),
    [
        ([[FEED, F1, F2, F3, F4]], "seed b4 b3 b2 b1"),  # one segment is the last one: nothing runs again
        ([[FEED, F1, F2], [F3, F4]], "seed b4 b3 f1 b2 b1"),  # x2 crosses; b2 reads x1, and b1 the batch
        ([[FEED, F1, F2, F3], [F4]], "seed b4 f1 f2 b3 b2 b1"),  # x2 needs x1; then b2 has it
        ([[FEED, F1], [F2, F3], [F4]], "seed b4 f2 b3 b2 b1"),  # x1 crosses and x3 does; x2 from x1
        ([[FEED], [F1], [F2], [F3], [F4]], "seed b4 b3 b2 b1"),  # everything crosses
        ([[FEED, F1, F2, F3, F4], []], "f1 f2 f3 f4 seed b4 b3 b2 b1"),  # the seed reads x4, which no segment keeps
    ],
)
def test_what_backward_needs_runs_again_just_before_it(segments, backward):
    assert order(segments) == backward


def test_a_layer_to_keep_is_not_recomputed_and_one_to_recompute_is_though_it_crosses():
    halves = [[FEED, F1, F2], [F3, F4]]
    assert order(halves, hints=Hints(keep=("f1",))) == "seed b4 b3 b2 b1"
    assert order(halves, hints=Hints(recompute=("f2",))) == "seed b4 f1 f2 b3 b2 b1"
    assert order([[FEED, F1, F2, F3, F4]], hints=Hints(recompute=("f[13]",))) == "seed f3 b4 b3 f1 b2 b1"


def test_a_stash_stays_with_the_output_that_crosses_or_is_recomputed_with_its_op():
    """pool writes y, which the next segment reads, and an argmax that its backward alone reads."""
    net = graph(
        [*(buffer(name, "data", 256) for name in ("x", "y", "z", "dy", "dx")), buffer("argmax", STASH, 256)],
        [
            op("feed.forward", FORWARD, writes="x"),
            repeatable(op("pool.forward", FORWARD, "x", "y argmax")),
            repeatable(op("next.forward", FORWARD, "y", "z")),
            op("next.backward", "backward", "z", "dy"),
            op("pool.backward", "backward", "dy argmax", "dx"),
        ],
    )
    feed, pool, following = forward_ops(net)
    orders = [
        segments_to_plan(net, [[feed, pool], [following]], "", keep_side_outputs=keep).order for keep in (True, False)
    ]
    assert [names.count("pool.forward") for names in orders] == [1, 2]
    assert orders[1][-2:] == ("pool.forward", "pool.backward")


def test_seconds_of_recomputation_are_those_of_repeated_ops():
    again = seconds_again(NET, a_second_each(NET))
    twice = Plan("", (*program_order(NET)[:5], "f1.forward", "f2.forward", *program_order(NET)[5:]))
    assert recompute_seconds(twice, again) == 2.0
    assert recompute_seconds(Plan("", program_order(NET)), again) == 0.0


def test_a_glob_names_the_layer_of_an_op_or_one_of_those_that_it_fuses():
    fused = replace(op("conv1+relu1.forward", FORWARD), layers=("conv1", "relu1"))
    assert [matches(fused, [glob]) for glob in ("conv1", "relu1", "relu*", "conv1+relu1", "elu1", "conv1.forward")] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]


def test_the_bytes_of_an_op_are_those_of_all_that_it_writes():
    assert [output_bytes(NET, each) for each in (FEED, F1, NET.by_name["seed.backward"])] == [UNIT] * 3
