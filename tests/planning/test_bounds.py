"""The bounds: by hand on a chain, and never above what a plan does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layermem.backends.base import get_device
from layermem.compiler import compile
from layermem.errors import BudgetError
from layermem.graph.net import Net
from layermem.graph.ops import BACKWARD, DATA, DIFF, FORWARD, Buffer, Graph, Op
from layermem.graph.train import Rule, train_graph
from layermem.layers import Tensor
from layermem.ops import Silence
from layermem.planning.bounds import _cheapest, least_bytes, least_seconds
from layermem.planning.costs import Costs, Rates, model_costs
from layermem.planning.hints import Hints
from layermem.proto.read import read_net_text
from tests.nets import NETS

COSTS = Costs(Rates(flops=1e3, memory=1e30, d2h=1e9, h2d=1e9, launch=0.0))  # a FLOP takes a millisecond


def chain() -> Graph:
    """x -> a -> b -> c, and back; 1 KiB each.  Recomputing a takes 2 ms, b 1 ms; each backward reads its own value."""
    names = ("x", "a", "b", "c", "dc", "db", "da")
    buffers = {n: Buffer(n, DIFF if n[0] == "d" else DATA, Tensor((256,)), 1024) for n in names}

    def op(name: str, kind: str, reads: tuple[str, ...], writes: tuple[str, ...], flops: int) -> Op:
        made = Op(name, kind, Silence(), "run", {b: b for b in (*reads, *writes)}, reads, writes, flops=flops)
        return replace(made, recompute=made) if kind == FORWARD and reads else made

    ops = (
        op("feed", FORWARD, (), ("x",), 0),
        op("first", FORWARD, ("x",), ("a",), 2),
        op("second", FORWARD, ("a",), ("b",), 1),
        op("third", FORWARD, ("b",), ("c",), 1),
        op("seed", BACKWARD, ("c",), ("dc",), 1),
        op("back b", BACKWARD, ("dc", "b"), ("db",), 1),
        op("back a", BACKWARD, ("db", "a"), ("da",), 1),
    )
    return Graph("chain", buffers, ops, "cpu")


def test_no_plan_goes_below_what_one_op_touches():
    assert least_bytes(chain()) == 3 * 1024  # "back b": dc, b, db


def test_what_must_give_way_is_made_again_or_comes_back():
    slow = Costs(replace(COSTS.rates, h2d=1.0))  # a byte a second: no plan would bring anything back
    assert least_seconds(chain(), slow, 4 * 1024) == pytest.approx(7e-3)  # all fits: every op once
    # "back b" alone fills 3 KiB while a passes by, so a must be recomputed: 2 ms (at `seed`, b for 1 ms would do)
    assert least_seconds(chain(), slow, 3 * 1024) == pytest.approx(9e-3, rel=1e-4)
    assert least_seconds(chain(), COSTS, 3 * 1024) == pytest.approx(7e-3)  # a fast link hides it


def test_recomputation_and_the_link_share_what_gives_way():
    # 10 bytes give way at a byte a second beside 4 s of ops: x recomputed at 0.5 s a byte, 4 + x/2 = 10 - x
    assert _cheapest([(10, 5.0)], 10, 4.0, 1.0) == pytest.approx(6.0)


def test_what_fits_neither_the_device_nor_the_host_is_computed_again():
    # the fast link hides all of it, but the host takes nothing: 1 KiB of a is made again
    assert least_seconds(chain(), COSTS, 3 * 1024, 0) == pytest.approx(9e-3)
    assert least_seconds(chain(), COSTS, 3 * 1024, 512) == pytest.approx(8e-3)  # or half of it
    assert least_seconds(chain(), COSTS, 3 * 1024, 1024) == pytest.approx(7e-3)
    assert _cheapest([(10, 5.0), (5, float("inf"))], 12, 4.0, 100.0, 0) == pytest.approx(9.0)  # 2 have no place at all


@pytest.mark.parametrize("host_budget", [0, 4096])
@pytest.mark.parametrize("strategy", ["sublinear", "recompute", "auto"])
def test_no_plan_within_a_host_budget_passes_below_the_bound(strategy, host_budget):
    graph = train_graph(Net(read_net_text(NETS["residual"]), 0), get_device("cpu"), Rule("SGD", 1))
    whole, hints = compile([graph], strategy="liveness").arena_bytes, Hints(host_budget_bytes=host_budget)
    bounds = []
    for share in (1.0, 0.9, 0.8, 0.7, 0.6):
        try:
            program = compile([graph], strategy=strategy, budget_bytes=int(whole * share), hints=hints)
        except BudgetError:
            continue
        costs = model_costs("cpu")
        bounds.append(least_seconds(graph, costs, program.arena_bytes, host_budget))
        assert program.seconds >= bounds[-1] * (1 - 1e-9)
        assert bounds[-1] >= least_seconds(graph, costs, program.arena_bytes)
    assert bounds


@pytest.mark.parametrize("net", ["chain", "residual"])
@pytest.mark.parametrize("strategy", ["liveness", "intra", "inter", "hybrid", "sublinear", "recompute", "auto"])
def test_no_plan_passes_below_the_bounds(net, strategy):
    graph = train_graph(Net(read_net_text(NETS[net]), 0), get_device("cpu"), Rule("SGD", 1))
    whole = compile([graph], strategy="liveness").arena_bytes
    for share in (1.0, 0.8, 0.6):
        try:
            program = compile([graph], strategy=strategy, budget_bytes=int(whole * share))
        except BudgetError:
            continue
        assert program.train.peak_bytes >= least_bytes(graph)
        bound = least_seconds(graph, model_costs("cpu"), program.arena_bytes)
        assert program.seconds >= bound * (1 - 1e-9)
