"""`auto` on a chain of eight: the cheaper one of copies and recomputation, and both where neither is enough."""

import pytest

from layermem.planning.hints import Hints
from layermem.planning.plan import Decision, Gap, program_order
from layermem.planning.strategies import auto
from layermem.utils import parallel
from tests.planning.chains import UNIT, Planned, chain

NET = chain(8)
OPS = 18  # seconds of every op once: the feed, eight forward, the seed, eight backward
SLOW, FAST = UNIT / 1000, UNIT  # a link on which a blob takes a thousand ops, or one


def offloads(planned):
    return [gap for gap, decision in planned.plan.decisions.items() if decision is Decision.OFFLOAD]


@pytest.mark.parametrize("budget", [None, 10, 11])
def test_where_everything_fits_nothing_is_moved_or_repeated(budget):
    plan = Planned("auto", NET, budget).plan
    assert plan.order == program_order(NET) and not plan.decisions


@pytest.mark.parametrize("budget", [4, 5, 6, 7, 8, 9])
def test_over_a_link_that_hides_every_copy_nothing_is_recomputed(budget):
    """Each unit below ten is one activation on the host."""
    planned = Planned("auto", NET, budget, link=FAST)
    assert (planned.repeated, len(offloads(planned))) == ([], 10 - budget)
    assert (planned.units, planned.seconds) == (budget, OPS)


@pytest.mark.parametrize(("budget", "repeats"), [(9, 1), (8, 2), (7, 3), (6, 4)])
def test_over_a_slow_link_nothing_is_offloaded_and_as_little_recomputed_as_possible(budget, repeats):
    """The least of any cut of the chain (test_recompute.py)."""
    planned = Planned("auto", NET, budget, link=SLOW)
    assert (len(planned.repeated), offloads(planned)) == (repeats, [])
    assert planned.seconds == OPS + repeats


def test_smaller_budgets_recompute_repeatedly_and_then_offload():
    """Six units are the floor of lower sets, four that of `nested` (test_nested.py)."""
    planned = {units: Planned("auto", NET, units, link=SLOW) for units in (5, 4, 3)}
    assert [planned[units].units for units in planned] == [5, 4, 3]
    assert [(len(each.repeated), bool(offloads(each))) for each in planned.values()] == [
        (7, False),
        (21, False),
        (0, True),
    ]


def test_auto_takes_the_fewest_bytes_of_any_strategy_if_none_fits():
    others = [Planned(name, NET, 0).units for name in ("inter", "sublinear", "recompute", "hybrid")]
    assert Planned("auto", NET, 0).units == min(others) == 3


def test_state_goes_to_the_host_only_where_activations_are_not_enough():
    """12 units of w and h stay; three live blobs make 15, and below that some state has to leave."""
    net = chain(6, parameters=True, overlays=True)
    assert {Planned("auto", net, units).units <= units for units in (15, 12, 9, 6)} == {True}
    on_host = [any(gap.use == -1 for gap in Planned("auto", net, units).plan.decisions) for units in (16, 15, 12, 6)]
    assert on_host == [False, False, True, True]


@pytest.mark.parametrize(("launch", "repeats", "on_host"), [(0.0, 0, 9), (4.0, 3, 6)])
def test_state_is_copied_instead_of_recomputing_only_if_its_updates_need_not_share_a_launch(launch, repeats, on_host):
    """Copies of the state of nine layers are hidden, but each of these updates then takes a launch of its own."""
    planned = Planned("auto", chain(10, parameters=True, joins="SGD"), 24, link=UNIT, launch=launch)
    state = {gap.buffer for gap in offloads(planned) if gap.use == -1}
    assert (planned.units, len(planned.repeated), len(state)) == (24, repeats, on_host)


def test_the_host_budget_holds():
    planned = Planned("auto", NET, 7, link=FAST, hints=Hints(host_budget_bytes=2 * UNIT))
    assert len(offloads(planned)) <= 2 and planned.units <= 7 and planned.repeated


@pytest.mark.parametrize("budget", [3, 4, 5])
def test_the_plan_is_the_same_where_searches_run_at_the_same_time_and_one_after_the_other(monkeypatch, budget):
    together = []

    def in_turn(function):
        result = function()
        together.append(1)
        return lambda: result

    both = Planned("auto", NET, budget, link=UNIT / 4)
    for module in (parallel, auto):
        monkeypatch.setattr(module, "begin_thread", in_turn)
    assert Planned("auto", NET, budget, link=UNIT / 4).plan == both.plan and len(together) > 2


def test_an_offloaded_parameter_stays_between_its_uses_where_that_is_quicker():
    """Bytes for w6 are left from f6 to b6 and its update; w1 leaves after f1."""
    away = set(Planned("auto", chain(6, parameters=True, overlays=True), 7, link=UNIT / 3).plan.decisions)
    assert {use for use in (-1, 0, 1) if Gap("w6", use) in away} == {-1}
    assert {Gap("w1", -1), Gap("w1", 0)} <= away
