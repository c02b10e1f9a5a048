"""Delayed backward ops: on a U-shaped step by hand, and on random steps beside the checker."""

import random

import pytest

from layermem.graph.ops import BACKWARD, DATA, DIFF, FORWARD, GRADIENT, PARAMETER, UPDATE
from layermem.planning.op_order import delay_growth
from layermem.planning.plan import INTRA, Plan
from layermem.schedule.arena_planner import ArenaPlanner
from tests.compiling import compile
from tests.planning.chains import UNIT, a_second_each
from tests.planning.free_form import random_step
from tests.planning.jobs import random_job
from tests.schedule.small_graphs import buffer, graph, op, repeatable


def u_shape(*, weight_bytes: int = 0, reads: str = ""):
    """crop.backward makes three units of one, which enc.backward adds to last."""
    sizes = {"x": (DATA, 3), "deep": (DATA, 1), "d.crop": (DIFF, 1), "d.deep": (DIFF, 1), "d.x": (DIFF, 3)}
    blobs = [buffer(name, kind, units * UNIT) for name, (kind, units) in sizes.items()]
    weights = [buffer("w", PARAMETER, UNIT), buffer("g", GRADIENT, weight_bytes)] if weight_bytes else []
    grown, own = (" g", " w") if weights else ("", "")
    ops = [
        repeatable(op("enc.forward", FORWARD, "", "x")),
        repeatable(op("mid.forward", FORWARD, "x", "deep")),
        op("loss.backward", BACKWARD, "deep", f"d.crop d.deep{grown}"),
        op("crop.backward", BACKWARD, f"d.crop{reads}{own}", "d.x"),
        *([op("crop.update", UPDATE, "g", updates="w")] if weights else []),
        op("mid.backward", BACKWARD, "d.deep deep"),
        op("enc.backward", BACKWARD, "", updates="d.x"),
    ]
    return graph([*blobs, *weights], ops)


def own_order(net):
    return [each.name for each in net.ops]


def test_an_op_that_holds_more_after_than_before_runs_right_before_what_adds_to_it():
    delayed = delay_growth(u_shape(), own_order(u_shape()))
    assert delayed[-3:] == ["mid.backward", "crop.backward", "enc.backward"]


@pytest.mark.parametrize(("units", "is_delayed"), [(1, True), (2, False)])
def test_an_update_is_delayed_with_its_op_unless_its_gradient_takes_the_bytes_gained(units, is_delayed):
    net = u_shape(weight_bytes=units * UNIT)
    tail = ["crop.backward", "crop.update"] if is_delayed else ["mid.backward"]
    assert delay_growth(net, own_order(net))[-1 - len(tail) : -1] == tail


def test_what_reads_a_value_that_may_be_recomputed_stays():
    net = u_shape(reads=" x")
    assert delay_growth(net, own_order(net)) == own_order(net)


@pytest.mark.parametrize("seed", range(40))
def test_a_delayed_order_is_safe_and_never_needs_more_bytes(seed):
    if seed % 2:
        [net], costs = random_job(seed)
    else:
        net = random_step(seed, 2 + seed % 5, parameter=seed % 4 == 0)
        costs = a_second_each(net)
    draw, order = random.Random(seed), own_order(net)
    again = [each.name for each in net.ops if each.kind == FORWARD and each.recompute is not None]
    backward = next(i for i, each in enumerate(net.ops) if each.kind == BACKWARD)
    order[backward:backward] = draw.sample(again, min(len(again), 2))
    evaluator = ArenaPlanner([net], costs)
    plans = [Plan("mine", tuple(names), {}, INTRA) for names in (order, delay_growth(net, order))]
    assert sorted(plans[0].order) == sorted(plans[1].order)
    assert evaluator.live_bytes(plans[1]) <= evaluator.live_bytes(plans[0])
    compile([net], strategy=plans[1], costs=costs)  # which checks it
