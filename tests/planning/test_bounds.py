"""The bounds: by hand on a chain, never above the optimum of tiny steps, and never above what a plan does."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import inf

import pytest

from layermem.backends.base import get_device
from layermem.errors import BudgetError
from layermem.graph.net import Net
from layermem.graph.ops import BACKWARD, DATA, DIFF, FORWARD, PARAMETER, Buffer, Graph, Op
from layermem.graph.train import UpdateRule, train_graph
from layermem.layers import Tensor
from layermem.ops import BatchSlice, Silence
from layermem.planning.bounds import is_sliced, least_bytes, least_seconds, least_seconds_of
from layermem.planning.costs import Costs, Rates, model_costs
from layermem.planning.hints import Hints
from layermem.proto.read import read_net_text
from tests.compiling import compile
from tests.nets import NETS
from tests.planning.free_form import UNIT, FreeForm, another_order, random_step

COSTS = Costs(Rates(flops=1e3, memory=1e30, d2h=1e9, h2d=1e9, launch=0.0))  # a FLOP takes a millisecond
SLOW = Costs(replace(COSTS.rates, d2h=1.0, h2d=1.0))  # a byte a second: no plan would bring anything back


def chain(*, feed_again: bool = True, parameter_bytes: int = 0) -> Graph:
    """x -> a -> b -> c, and back; 1 KiB each.  Recomputing a takes 2 ms, b 1 ms; each backward reads its own value."""
    names = ("x", "a", "b", "c", "dc", "db", "da")
    buffers = {n: Buffer(n, DIFF if n[0] == "d" else DATA, Tensor((256,)), 1024) for n in names}
    if parameter_bytes:
        buffers["w"] = Buffer("w", PARAMETER, Tensor((parameter_bytes // 4,)), parameter_bytes, persistent=True)

    def op(name: str, kind: str, reads: tuple[str, ...], writes: tuple[str, ...], flops: int) -> Op:
        made = Op(name, kind, Silence(), "run", {b: b for b in (*reads, *writes)}, reads, writes, flops=flops)
        return replace(made, recompute=made) if kind == FORWARD and (reads or feed_again) else made

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


def test_without_the_host_something_is_held_from_which_the_rest_follows():
    assert least_bytes(chain(), 0) == 3 * 1024  # at "back b" nothing: x is read again, and a follows from it
    assert least_bytes(chain(feed_again=False), 0) == 4 * 1024  # x, or a
    assert least_bytes(chain(feed_again=False), 256) == 4 * 1024 - 256
    assert least_bytes(chain(feed_again=False)) == 3 * 1024


def test_persistent_buffers_lie_beside_every_op_but_for_what_the_host_takes():
    graph = chain(parameter_bytes=2048)
    assert [least_bytes(graph, host) for host in (0, 512, 2048, None)] == [5120, 4608, 3072, 3072]


def test_an_op_does_not_run_again_beside_more_than_the_budget():
    """Recomputing a takes x, a and 512 bytes of workspace, beside db or dc: 3.5 KiB.  Below that a is held through
    "back b", which is 4 KiB."""
    graph = chain()
    first = replace(graph.by_name["first"], recompute=replace(graph.by_name["first"], workspace_bytes=512))
    graph = replace(graph, ops=tuple(first if op.name == "first" else op for op in graph.ops))
    assert least_bytes(graph, 0) == 3 * 1024 + 512
    assert least_seconds(graph, COSTS, 3 * 1024 + 256, 0) == inf
    assert least_seconds(graph, COSTS, 3 * 1024 + 512, 0) == pytest.approx(9e-3)  # a gives way: no share of it is held


def test_what_must_give_way_is_made_again_or_comes_back():
    assert least_seconds(chain(), SLOW, 4 * 1024) == pytest.approx(7e-3)  # all fits: every op once
    # "back b" alone fills 3 KiB while a passes by, so a must be recomputed: 2 ms (at `seed`, b for 1 ms would do)
    assert least_seconds(chain(), SLOW, 3 * 1024) == pytest.approx(9e-3, rel=1e-3)
    assert least_seconds(chain(), COSTS, 3 * 1024) == pytest.approx(7e-3)  # a fast link hides it


def test_the_bounds_of_many_budgets_are_those_of_each():
    budgets = [nbytes * 1024 for nbytes in (5, 4, 3, 2)]
    alone = [least_seconds(chain(), COSTS, budget, 512) for budget in budgets]
    assert least_seconds_of(chain(), COSTS, budgets, 512) == alone and len(set(alone)) > 1


def test_recomputation_and_the_link_share_what_gives_way():
    """a comes back after "back b", so after 6 ms, or runs again, in 9 ms; a share of it would be quicker, in 7.5."""
    for seconds, least in ((1.5e-3, 7.5e-3), (2e-3, 8e-3), (4e-3, 9e-3)):
        back = Costs(replace(COSTS.rates, h2d=1024 / seconds))
        assert least_seconds(chain(), back, 3 * 1024) == pytest.approx(least)
    # a goes out before `seed`, with 3 ms of ops after that, and b with it, or runs again in 8 ms
    for seconds, least in ((4e-3, 7e-3), (4.5e-3, 7.5e-3), (6e-3, 8e-3), (8e-3, 9e-3)):
        out = Costs(replace(COSTS.rates, d2h=1024 / seconds))
        assert least_seconds(chain(), out, 3 * 1024) == pytest.approx(least)


def test_what_fits_neither_the_device_nor_the_host_is_computed_again():
    # the fast link hides all of it, but the host takes nothing: 1 KiB of a is made again
    assert least_seconds(chain(), COSTS, 3 * 1024, 0) == pytest.approx(9e-3)
    assert least_seconds(chain(), COSTS, 3 * 1024, 512) == pytest.approx(9e-3)  # half of it would not do
    assert least_seconds(chain(), COSTS, 3 * 1024, 1024) == pytest.approx(7e-3)
    assert least_seconds(chain(feed_again=False), COSTS, 3 * 1024, 0) == inf  # from what?


@pytest.mark.parametrize(
    "values, host, parameter, seeds", [(4, 0, False, 4), (3, 0, True, 8), (2, 2, True, 6), (3, 2, False, 2)]
)
def test_no_free_form_optimum_is_below_the_bound(values, host, parameter, seeds, record_property):
    """Without copies, and with some; a copy of a unit takes as long as 1.5 FLOPs."""
    costs = Costs(replace(COSTS.rates, d2h=UNIT / 1.5e-3, h2d=UNIT / 1.5e-3)) if host else COSTS
    equal = cases = 0
    for seed in range(seeds):
        graph = random_step(seed, values, parameter=parameter)
        search, least = FreeForm(graph, costs), least_bytes(graph, host * UNIT)
        reached = False
        for budget in range(least - UNIT, least + 4 * UNIT, UNIT):
            optimum = search.least_seconds(budget, host * UNIT)
            assert optimum is None or budget >= least, seed
            if optimum is None:
                continue
            bound = least_seconds(graph, costs, budget, host * UNIT)
            assert bound <= optimum * (1 + 1e-9), (seed, budget)
            equal, cases = equal + (bound >= optimum * (1 - 1e-9)), cases + 1
            reached = True
        assert reached, seed
    record_property("equal", f"{equal} of {cases}")
    assert equal > cases // 3  # and tight enough to be of use


@pytest.mark.parametrize("seed", range(4))
def test_the_bounds_do_not_depend_on_the_order_of_the_ops(seed):
    graph = random_step(seed, 5, parameter=True)
    other = another_order(graph, seed)
    assert [op.name for op in other.ops] != [op.name for op in graph.ops]
    least = least_bytes(graph, 0)
    assert least == least_bytes(other, 0)
    for budget in (least, least + 2 * UNIT):
        assert least_seconds(graph, COSTS, budget, 0) == pytest.approx(least_seconds(other, COSTS, budget, 0))


def test_more_of_anything_never_raises_a_bound():
    graph = train_graph(Net(read_net_text(NETS["residual"]), 0), get_device("cpu"), UpdateRule("SGD", 1))
    costs, whole = Costs(Rates(2e9, 1e10, 1e9, 1e9, 0.0)), compile([graph], strategy="liveness").arena_bytes
    budgets = [whole * share // 20 for share in range(4, 21)]

    def falls(bounds: list[float]) -> bool:
        return all(b <= a * (1 + 1e-9) for a, b in pairwise(bounds)) and bounds[0] > bounds[-1]

    hosts = [*range(0, whole // 2, whole // 16), None]
    for host in (0, whole // 8, None):
        assert falls(least_seconds_of(graph, costs, budgets, host))
    assert falls([least_seconds(graph, costs, whole // 2, host) for host in hosts])
    assert falls([float(least_bytes(graph, host)) for host in hosts])
    for direction in ("d2h", "h2d"):
        quick = replace(costs.rates, d2h=1e12, h2d=1e12)
        rates = [replace(quick, **{direction: 1e6 * 4**step}) for step in range(10)]
        assert falls([least_seconds(graph, Costs(each), whole // 2) for each in rates])


def test_is_sliced_finds_an_op_on_a_slice_of_the_batch():
    graph = chain()
    assert not is_sliced(graph)
    record = replace(graph.ops[1].record, batch_slice=BatchSlice(0, 2, 4))
    assert is_sliced(replace(graph, ops=(replace(graph.ops[1], record=record),)))


@pytest.mark.parametrize("host_budget", [0, 4096])
@pytest.mark.parametrize("strategy", ["recompute", "nested", "auto"])
def test_no_plan_within_a_host_budget_passes_below_the_bound(strategy, host_budget):
    graph = train_graph(Net(read_net_text(NETS["residual"]), 0), get_device("cpu"), UpdateRule("SGD", 1))
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
        assert program.arena_bytes >= least_bytes(graph, host_budget)
    assert bounds


@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("device", ["cpu", "cuda"])  # on cuda, updates join each other in one launch
@pytest.mark.parametrize("net", ["chain", "residual"])
@pytest.mark.parametrize(
    "strategy", ["liveness", "intra", "inter", "hybrid", "sublinear", "recompute", "nested", "auto"]
)
def test_no_plan_passes_below_the_bounds(net, strategy, device):
    graph = train_graph(Net(read_net_text(NETS[net]), 0), get_device(device), UpdateRule("SGD", 1))
    whole = compile([graph], strategy="liveness").arena_bytes
    for share in (1.0, 0.8, 0.6):
        try:
            program = compile([graph], strategy=strategy, budget_bytes=int(whole * share))
        except BudgetError:
            continue
        assert program.train.peak_bytes >= least_bytes(graph)
        bound = least_seconds(graph, model_costs(device), program.arena_bytes)
        assert program.seconds >= bound * (1 - 1e-9)
