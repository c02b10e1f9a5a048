"""Residencies of buffers, live bytes and seconds of a step: by hand, and compared with a slow oracle."""

import random
from dataclasses import replace

import pytest

from layermem.planning.plan import REUSE, Decision, Gap, Plan
from layermem.schedule.layout import ORDERS_CACHED, Layout, OrderResidency
from layermem.schedule.lower import lower
from layermem.schedule.place import place
from layermem.schedule.simulate import simulate
from layermem.utils.units import aligned
from tests.schedule.layout_oracle import LayoutOracle, live_bytes_by_instruction
from tests.schedule.random_graphs import random_costs, random_graph, random_plan
from tests.schedule.small_graphs import a_second_each, small_graph, small_plan


def case(seed):
    rng = random.Random(seed)
    graph = random_graph(rng, rng.randint(1, 8))
    layout = Layout(graph, random_costs(rng, graph))
    return layout, random_plan(rng, graph)


@pytest.mark.parametrize("block", range(4))
def test_residencies_bytes_and_seconds_are_those_of_the_slow_oracle(block):
    for seed in range(block * 50, block * 50 + 50):
        layout, plan = case(seed)
        oracle = LayoutOracle(layout.graph, layout.costs, plan)
        residencies = layout.residencies(plan)
        assert residencies == oracle.residencies(), seed
        lowered = lower(layout, plan)
        assert layout.live_bytes(plan) == live_bytes_by_instruction(lowered.instructions, lowered.residencies), seed
        assert layout.estimate_seconds(plan) == pytest.approx(oracle.seconds(residencies), rel=1e-12), seed


def test_live_bytes_are_a_bound_that_placement_reaches_or_comes_near():
    reached = 0
    for seed in range(150):
        layout, plan = case(seed)
        schedule = place(lower(layout, plan))
        assert schedule.max_live_bytes == layout.live_bytes(plan), seed
        assert schedule.max_live_bytes <= schedule.peak_bytes <= 1.2 * schedule.max_live_bytes, seed
        highest = max(r.offset + aligned(r.nbytes) for r in schedule.residencies if not r.host)
        assert schedule.peak_bytes == highest, seed
        assert schedule.host_peak_bytes == max(
            (r.offset + aligned(r.nbytes) for r in schedule.residencies if r.host), default=0
        )
        reached += schedule.fragmentation_bytes == 0
    assert reached >= 145


def test_the_estimate_of_a_step_is_never_below_what_its_schedule_takes():
    apart = []
    for seed in range(150):
        layout, plan = case(seed)
        taken = simulate(place(lower(layout, plan)), layout.costs)
        estimate = layout.estimate_seconds(plan)
        assert taken.compute_seconds - 1e-9 <= taken.seconds <= estimate + 1e-9, seed
        apart.append(estimate / taken.seconds)
    assert sum(apart) / len(apart) < 1.05  # and it is not far above


@pytest.mark.parametrize("block", range(3))
def test_offloads_are_removed_one_after_the_other_where_the_rest_fits_and_is_no_slower(block):
    removals = 0
    for seed in range(block * 50, block * 50 + 50):
        layout, plan = case(seed)
        rng = random.Random(seed)
        offloads = [gap for gap, decision in plan.decisions.items() if decision is Decision.OFFLOAD]
        rng.shuffle(offloads)
        groups = [[gap for gap in offloads if gap.buffer == buffer] for buffer in dict.fromkeys(g[0] for g in offloads)]
        groups += [[gap] for gap in offloads[: len(offloads) // 2]]
        plan = replace(plan, copy_limit_bytes=rng.choice((None, 0, layout.live_bytes(plan) * 3 // 4)))
        budget, tried_with_state = layout.live_bytes(plan) + rng.randint(0, 2048), []

        def fits_beside(removed, groups=groups, seen=tried_with_state):
            seen.append(groups[removed[-1]])
            return len(removed) % 3 != 0

        left, expected, with_state = plan, [], []
        for number, group in enumerate(groups):
            rest = {gap: decision for gap, decision in left.decisions.items() if gap not in group}
            tried = replace(plan, decisions=rest)
            if len(rest) == len(left.decisions) or layout.live_bytes(tried) > budget:
                continue
            if any(gap.use < 0 for gap in group):
                with_state.append(group)
                if (len(expected) + 1) % 3 == 0:
                    continue
            if layout.estimate_seconds(tried) <= layout.estimate_seconds(left):
                left = tried
                expected.append(number)
        found = layout.without_offloads(plan, groups, budget, fits_beside)
        assert found == (expected, layout.estimate_seconds(left)), seed
        assert tried_with_state == with_state, seed
        removals += len(expected)
    assert removals > 20


def test_the_fewest_offloads_of_a_list_are_those_with_which_the_plan_fits():
    needed = 0
    for seed in range(100):
        layout, plan = case(seed)
        offloads = [gap for gap, decision in plan.decisions.items() if decision is Decision.OFFLOAD and gap.use >= 0]
        plan = replace(plan, decisions={gap: d for gap, d in plan.decisions.items() if gap not in offloads})
        live_bytes = [
            layout.live_bytes(replace(plan, decisions={**plan.decisions, **dict.fromkeys(gaps, Decision.OFFLOAD)}))
            for gaps in (offloads[:count] for count in range(len(offloads) + 1))
        ]
        for budget in {*live_bytes, min(live_bytes) - 1}:
            found = layout.fewest_offloads(plan, offloads, budget)
            if found is None:
                assert live_bytes[-1] > budget
            else:
                assert live_bytes[found] <= budget and (found == 0 or live_bytes[found - 1] > budget), seed
                needed += found > 0
    assert needed > 50


@pytest.mark.parametrize("position", [-1, 1])
def test_groups_of_removed_offloads_have_positions_of_decisions(position):
    layout = Layout(small_graph(), a_second_each(small_graph()))
    order = layout._prepared(small_plan().order)
    with pytest.raises(ValueError, match="a decision that there is not"):
        order.without_offloads({Gap("x", 1): Decision.OFFLOAD}, [[position]], 0, 1.0, 2**40, 2**40)


def residencies_of(plan, name):
    layout = Layout(small_graph(), a_second_each(small_graph()))
    return [r for r in layout.residencies(plan) if r.buffer == name]


def test_a_recomputed_buffer_has_a_residency_for_each_time():
    assert residencies_of(small_plan(), "b") == [
        OrderResidency("b", 2, 4, 4, None, False, False),
        OrderResidency("b", 6, 8, 8, None, False, False),
    ]


def test_an_offloaded_buffer_is_resident_until_its_copy_is_done_and_returns_in_time():
    """x leaves after position 1 and is read at 5: each copy takes two seconds, each op one."""
    assert residencies_of(small_plan(), "x") == [
        OrderResidency("x", 0, 2, 4, None, True, False),
        OrderResidency("x", 5, 9, 9, 3, False, False),
    ]
    assert residencies_of(replace(small_plan(), copy_lead=0.5), "x") == [
        OrderResidency("x", 0, 2, 3, None, True, False),
        OrderResidency("x", 5, 9, 9, 4, False, False),
    ]
    assert residencies_of(replace(small_plan(), copy_lead=0.0), "x") == [
        OrderResidency("x", 0, 2, 2, None, True, False),
        OrderResidency("x", 5, 9, 9, 5, False, False),
    ]


def test_copies_hold_bytes_as_far_as_the_limit_permits():
    """x, of 512 bytes, leaves after position 1 and is read at 5; its copies of two seconds are hidden by holding it to
    4 and from 3 on.  Without x 1024 bytes are live there: the copy to the host comes first, then the one back."""
    expected = {None: (4, 3), 2048: (4, 3), 2047: (4, 4), 1536: (4, 4), 1535: (2, 5), 0: (2, 5)}
    layout = Layout(small_graph(), a_second_each(small_graph()))
    for limit, (release, issue) in expected.items():
        plan = replace(small_plan(), copy_limit_bytes=limit)
        assert residencies_of(plan, "x") == [
            OrderResidency("x", 0, 2, release, None, True, False),
            OrderResidency("x", 5, 9, 9, issue, False, False),
        ], limit
    seconds = [layout.estimate_seconds(replace(small_plan(), copy_limit_bytes=limit)) for limit in (1535, 1536, None)]
    assert seconds == [18, 15, 13]


def test_an_unchanged_buffer_is_not_copied_to_the_host_again():
    plan = replace(
        small_plan(), decisions={Gap("x", 1): Decision.OFFLOAD, Gap("x", 2): Decision.OFFLOAD}, copy_lead=0.0
    )
    assert [(r.prefetch_at, r.offloads) for r in residencies_of(plan, "x")] == [(None, True), (5, False), (8, False)]


def test_a_parameter_on_the_host_between_steps_is_written_back_where_an_op_changed_it():
    decisions = {Gap("w", -1): Decision.OFFLOAD, Gap("w", 0): Decision.OFFLOAD, Gap("w", 1): Decision.OFFLOAD}
    plan = replace(small_plan(), decisions=decisions, copy_lead=0.0)
    assert [(r.begin, r.end, r.offloads) for r in residencies_of(plan, "w")] == [
        (1, 2, False),
        (5, 6, False),
        (9, 10, True),
    ]


def test_a_buffer_that_keeps_its_bytes_round_the_step_has_one_residency():
    plan = replace(small_plan(), decisions={Gap("b", -1): Decision.KEEP})
    assert residencies_of(plan, "b") == [OrderResidency("b", 2, 8, 8, None, False, True)]


def test_a_step_takes_its_ops_and_what_of_its_copies_is_not_hidden():
    """Ten ops of a second; h must be there at position 9, and goes back for two seconds after it."""
    layout = Layout(small_graph(), a_second_each(small_graph()))
    assert layout.estimate_seconds(replace(small_plan(), decisions={})) == 10
    assert layout.estimate_seconds(replace(small_plan(), decisions={Gap("h", -1): Decision.OFFLOAD})) == 12
    assert (
        layout.estimate_seconds(replace(small_plan(), decisions={Gap("h", -1): Decision.OFFLOAD}, copy_lead=0.0)) == 14
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"order": ("x.forward", "x.forward")}, "runs 'x.forward' twice, but it cannot be repeated"),
        ({"order": ("a.forward",)}, "reads 'x' at a.forward before anything made it"),
        (
            {"decisions": {Gap("x", 0): Decision.RECOMPUTE}},
            "frees 'x' without recomputing it before a.forward reads it",
        ),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(change, message):
    layout = Layout(small_graph(), a_second_each(small_graph()))
    with pytest.raises(ValueError, match=message):
        layout.live_bytes(replace(small_plan(), **change))


def test_a_fetched_buffer_may_come_back_to_another_place():
    schedule = place(lower(Layout(small_graph(), a_second_each(small_graph())), small_plan()))
    first, second = (r for r in schedule.residencies if r.buffer == "x" and not r.host)
    assert first.offset != second.offset and first.end <= second.end


def test_overlays_are_used_only_where_the_plan_allows_their_kind():
    layout = Layout(small_graph(), a_second_each(small_graph()))

    def over(overlays):
        residencies = lower(layout, replace(small_plan(), overlays=frozenset(overlays))).residencies
        return [(r.buffer, residencies[r.over].buffer) for r in residencies if r.over is not None]

    assert over(()) == []
    assert over({"forward"}) == [("b", "a"), ("b", "a")]
    assert over({"gradient"}) == [("a.diff", "b.diff")]
    assert over(REUSE) == [("b", "a"), ("b", "a"), ("a.diff", "b.diff")]
    assert layout.live_bytes(replace(small_plan(), overlays=frozenset())) > layout.live_bytes(small_plan())


def test_a_plan_names_only_what_the_graph_has():
    layout = Layout(small_graph(), a_second_each(small_graph()))
    with pytest.raises(KeyError):
        layout.live_bytes(Plan("by hand", ("nothing.forward",)))


def test_a_layout_refuses_gaps_of_unknown_buffers_and_what_is_no_decision():
    layout = Layout(small_graph(), a_second_each(small_graph()))
    with pytest.raises(KeyError, match="nowhere"):
        layout.live_bytes(replace(small_plan(), decisions={Gap("nowhere", 0): Decision.OFFLOAD}))
    with pytest.raises(ValueError, match="no decision is 'offload'"):
        layout.live_bytes(replace(small_plan(), decisions={Gap("x", 0): "offload"}))


def test_plans_of_many_orders_are_measured_alike_in_any_sequence():
    """There are more orders than a layout keeps: dropped ones are prepared again."""
    layout = Layout(small_graph(), a_second_each(small_graph()))
    plan = small_plan()
    expected = layout.live_bytes(plan), layout.estimate_seconds(plan)
    copies = [replace(plan, order=(*plan.order,)) for _ in range(2 * ORDERS_CACHED)]
    assert {(layout.live_bytes(each), layout.estimate_seconds(each)) for each in (*copies, *copies, plan)} == {expected}
