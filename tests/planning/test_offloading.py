"""Which gaps may be offloaded, in which order, and how early copies run; by hand on a chain of four (chains.py)."""

from layermem.graph.ops import BACKWARD, FORWARD, HISTORY, PARAMETER, STASH, uses_of
from layermem.planning.hints import Hints
from layermem.planning.offloading import (
    HostBudget,
    activations,
    crossing_gaps,
    long_gaps,
    offload_state,
    with_longest_copy_lead,
)
from layermem.planning.plan import Decision, Gap, Plan, ops_in_order
from tests.planning.chains import UNIT, chain
from tests.schedule.small_graphs import buffer, graph, op

NET = chain(4)
STATE = chain(2, parameters=True)


def host(net, nbytes=None):
    return HostBudget(net, Hints(host_budget_bytes=nbytes))


def test_activations_are_data_and_stashes_and_no_gradients():
    net = graph([*chain(1).buffers.values(), buffer("argmax", STASH, UNIT)], chain(1).ops)
    assert activations(net) == ["x0", "x1", "argmax"]


def test_long_gaps_come_longest_first_and_those_of_two_ops_are_left_out():
    """x0: f1 at position 1, b1 at 9; x3: f4 at 4, b4 at 6.  Gaps from the op that writes are of one op."""
    assert long_gaps(NET.uses, activations(NET)) == [Gap("x0", 1), Gap("x1", 1), Gap("x2", 1)]


def test_a_gap_whose_next_use_writes_the_buffer_again_keeps_nothing_to_offload():
    """Here f1 and f2 run again before b3: the old x1 is not what b2 reads."""
    names = [op.name for op in NET.ops]
    again = uses_of(ops_in_order(NET, (*names[:7], "f1.forward", "f2.forward", *names[7:])))
    assert [use.reads for use in again["x1"]] == [False, True, False, True, True]
    assert Gap("x1", 1) not in long_gaps(again, ["x1"])


def test_only_gaps_from_forward_into_backward_cross():
    """Of five ops each way: `skip` returns within forward, `late` within backward, `over` crosses."""
    reads, writes = {4: "skip over", 8: "over", 9: "late"}, {0: "skip over", 5: "late"}
    kinds = [FORWARD] * 5 + [BACKWARD] * 5
    ops = [op(str(i), kind, reads.get(i, ""), writes.get(i, "")) for i, kind in enumerate(kinds)]
    net = graph([buffer(name, "data", UNIT) for name in ("skip", "over", "late")], ops)
    names = ["skip", "over", "late"]
    assert set(long_gaps(net.uses, names)) == {Gap("skip", 0), Gap("over", 0), Gap("over", 1), Gap("late", 0)}
    assert set(crossing_gaps(net, names, host(net))) == {Gap("over", 1)}


def test_a_host_budget_is_reserved_buffer_by_buffer_and_a_large_one_is_passed_over():
    budget = host(graph([buffer("large", "data", 1000), buffer("small", "data", 200)], []), 768)
    assert [budget.reserve(name) for name in ("small", "large", "small", "small", "small")] == [
        True,
        False,
        True,
        True,
        False,
    ]


def test_without_a_host_budget_everything_may_leave():
    assert all(host(NET).reserve("x0") for _ in range(1000))


def test_state_is_on_the_host_between_steps_and_in_its_long_gaps():
    """f1 at position 1, b1 at 6 and the update at 7 touch w1; the update alone touches h1."""
    decisions = offload_state(STATE, STATE.uses, (HISTORY, PARAMETER), host(STATE))
    assert {gap for gap in decisions if gap.buffer == "h1"} == {Gap("h1", -1)}
    assert {gap for gap in decisions if gap.buffer == "w1"} == {Gap("w1", -1), Gap("w1", 0)}
    assert set(decisions.values()) == {Decision.OFFLOAD}
    assert {gap.buffer for gap in offload_state(STATE, STATE.uses, (HISTORY,), host(STATE))} == {"h1", "h2"}
    assert {gap.buffer for gap in offload_state(STATE, STATE.uses, (HISTORY,), host(STATE, UNIT))} == {"h1"}


class Needs:
    """An evaluator whose plans take 100 bytes, and 100 more at a full copy lead."""

    def live_bytes(self, plan):
        return 100 + round(100 * plan.copy_lead)


def test_the_longest_lead_that_fits_is_taken_and_none_where_nothing_does():
    plan = Plan("", ())
    leads = {
        budget: with_longest_copy_lead(plan, budget, Needs(), Hints()).copy_lead
        for budget in (250, 200, 199, 150, 149, 99)
    }
    assert leads == {250: 1.0, 200: 1.0, 199: 0.5, 150: 0.5, 149: 0.0, 99: 0.0}
    assert with_longest_copy_lead(plan, None, Needs(), Hints()).copy_lead == 0.0
