"""The native planner of nested recomputation, on chains by hand and beside the optimum of all schedules.

The graph of value v and gradient v is that of test_planning_free_form.py: an op computes v from what it reads, and one
forms its gradient from the gradients of v's readers and the values that they read.
"""

import random
from itertools import combinations

import pytest

from layermem._native import LayoutGraph, NestedPlanner
from tests.native.test_planning_free_form import FreeForm

EQUAL = 0.55  # of all cases, at least
EQUAL_WITH_COPIES = 0.5
OFFLOAD = 1  # code of the decision


class Values:
    """A native layout of values and gradients, every op once in `order`; only forward ops take time, and copies of
    values `copies` seconds, each way."""

    def __init__(self, time, size, edges, copies=None):
        self.free, count = FreeForm(time, size, edges), len(time)
        self.copies = copies or [0.0] * count
        self.layout = LayoutGraph()
        for letter in "xd":
            for v in range(count):
                self.layout.add_buffer(f"{letter}{v}", size[v], False, self.copies[v], self.copies[v])
        self.order = []
        for v in range(count):
            reads = self.members(self.free.before[v])
            again = self.layout.add_op(f"f{v}", reads, [], [v], [], 0, float(time[v]))
            self.order.append(self.layout.add_op(f"f{v}", reads, [], [v], [], 0, float(time[v]), again))
        for v in reversed(range(count)):
            reads = [*self.members(self.free.reads[v]), *(count + w for w in self.members(self.free.after[v]))]
            self.order.append(self.layout.add_op(f"b{v}", reads, [], [count + v], [], 0, 0.0))
        self.planner = NestedPlanner(self.layout, self.order, list(range(count)), [], 0, 0)

    def members(self, mask):
        return [v for v in range(self.free.count) if mask >> v & 1]

    def live_bytes(self, order):
        return self.layout.measure(order, [], 0, 1.0)[0]

    def mixed_plan(self, budget, lead=1.0, host_bytes=10**9, starts=(), limit=1e9):
        """The plan with offloads, which takes the bytes and seconds that the layout says."""
        values = list(range(self.free.count))
        plan = self.planner.plan_with_offloads(budget, list(starts), values, [], host_bytes, 0, lead, limit)
        if plan is not None:
            decisions = [(buffer, use, OFFLOAD) for buffer, use in plan.offloads]
            measured = self.layout.measure(plan.order, decisions, 0, lead, timed=True)
            assert measured[:2] == (plan.live_bytes, plan.seconds) and plan.live_bytes <= budget
            assert sum(self.free.size[v] for v in {buffer for buffer, _ in plan.offloads}) <= host_bytes
        return plan


def random_values(seed):
    draw = random.Random(seed)
    count = draw.choice((4, 5, 5, 6)) if seed % 20 else 8
    edges = [pair for pair in combinations(range(count), 2) if draw.random() < draw.choice((0.3, 0.6))]
    return Values([draw.choice((1, 2, 10)) for _ in range(count)], [draw.randint(0, 9) for _ in range(count)], edges)


def test_no_plan_is_below_the_optimum_of_all_schedules_and_most_are_equal_to_it(record_property):
    equal = cases = 0
    for seed in range(1, 26):
        values = random_values(seed)
        least, most = values.planner.minimum().live_bytes, values.live_bytes(values.order)
        for budget in {least, (least + 3 * most) // 4}:
            plan = values.planner.plan(budget, [])
            assert plan is not None and plan.live_bytes == values.live_bytes(plan.order) <= budget
            optimum = values.free.least_time(budget)
            assert optimum is not None and optimum <= plan.recompute_seconds, (seed, budget)
            equal, cases = equal + (optimum == plan.recompute_seconds), cases + 1
    record_property("equal to the optimum", f"{equal} of {cases}")
    print(f"equal to the optimum of all schedules: {equal} of {cases}")
    assert equal >= EQUAL * cases


def test_no_plan_with_offloads_is_below_the_optimum_of_all_schedules_with_copies():
    equal = cases = 0
    for seed in range(1, 19):
        draw = random.Random(seed)
        count = draw.choice((3, 4, 4, 5))
        edges = [pair for pair in combinations(range(count), 2) if draw.random() < 0.5]
        times, sizes = ([draw.choice(few) for _ in range(count)] for few in ((1, 2, 10), range(10)))
        values = Values(times, sizes, edges, [draw.choice((0.0, 0.5, 1.0, 4.0)) for _ in times])
        least, most = values.planner.minimum().live_bytes, values.live_bytes(values.order)
        for budget in {least, (least + most) // 2}:
            recomputing = values.planner.plan(budget, [])
            plan = values.mixed_plan(budget, starts=[recomputing.order])
            assert plan.seconds <= sum(times) + recomputing.recompute_seconds
            optimum = values.free.least_seconds(budget, values.copies)
            assert optimum <= plan.seconds + 1e-9, (seed, budget)
            equal, cases = equal + (plan.seconds <= optimum + 1e-9), cases + 1
    print(f"equal to the optimum of all schedules with copies: {equal} of {cases}")
    assert equal >= EQUAL_WITH_COPIES * cases


def test_where_copies_are_free_nothing_runs_again_and_where_they_are_dear_nothing_is_copied():
    """The chain of four below: with four bytes a second of recomputation, or one value on the host."""
    chain = [1, 1, 1, 1], [1, 1, 1, 1], [(0, 1), (1, 2), (2, 3)]
    free, dear = Values(*chain, [0.0] * 4).mixed_plan(4), Values(*chain, [100.0] * 4).mixed_plan(4)
    assert (free.seconds, len(free.order), len(free.offloads)) == (4, 8, 1)
    assert (dear.seconds, dear.offloads) == (5, [])


def test_the_host_budget_bounds_what_is_copied_and_the_limit_ends_what_is_slower():
    chain = Values([1, 1, 1, 1], [1, 1, 1, 1], [(0, 1), (1, 2), (2, 3)])
    assert [chain.mixed_plan(4, host_bytes=host).seconds for host in (0, 1)] == [5, 4]
    assert chain.mixed_plan(4, host_bytes=0, limit=3.9) is None


@pytest.mark.parametrize(("bytes_", "seconds"), [(5, 0), (4, 1), (3, 3)])
def test_a_chain_of_four_by_hand(bytes_, seconds):
    """a b c e, a byte and a second each.  dc is formed beside a b c de; with four bytes, a runs again for da; with
    three, a and b run again for db, then a for da."""
    values = Values([1, 1, 1, 1], [1, 1, 1, 1], [(0, 1), (1, 2), (2, 3)])
    assert values.free.least_time(bytes_) == values.planner.plan(bytes_, []).recompute_seconds == seconds


def test_the_same_question_has_the_same_answer_whatever_was_asked_before():
    first, second = random_values(20), random_values(20)
    budget = first.planner.minimum().live_bytes
    assert first.planner.plan(budget, []).order == second.planner.plan(budget, []).order
    assert first.planner.plan(budget, []).order == second.planner.plan(budget, []).order


def test_a_start_that_recomputes_less_is_the_plan():
    values = Values([5, 1, 1], [1, 1, 1], [(0, 1), (1, 2)])
    assert values.planner.plan(4, [values.order]).order == values.order


def test_what_is_dropped_runs_again_whatever_the_budget():
    values = Values([1, 1, 1], [1, 1, 1], [(0, 1), (1, 2)])
    planner = NestedPlanner(values.layout, values.order, [0, 1, 2], [1], 3, 0)
    assert values.order[1] in planner.plan(100, []).order[3:]


def test_a_plan_below_what_every_walk_needs_is_none():
    assert Values([1, 1], [4, 4], [(0, 1)]).planner.plan(7, []) is None
