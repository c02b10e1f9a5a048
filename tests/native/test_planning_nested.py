"""The native planner of nested recomputation: chains by hand, and comparison with the optimum of all schedules.

The graph of value v and gradient v is that of test_planning_free_form.py: an op computes v from what it reads, and one
forms its gradient from the gradients of v's readers and the values that they read.
"""

import random
from itertools import combinations
from math import inf, sqrt

import pytest

from layermem._native import LayoutGraph, NestedPlanner
from tests.native.test_planning_free_form import FreeForm

EQUAL = 0.55  # of all cases, at least
EQUAL_WITH_COPIES = 0.5
NO_LIMIT = 2**63 - 1  # bytes
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

    def mixed_plan(self, budget, copy_limit=NO_LIMIT, host_bytes=10**9, starts=(), limit=1e9):
        """The plan with offloads, which takes the bytes and seconds that the layout says."""
        values = list(range(self.free.count))
        plan = self.planner.plan_with_offloads(budget, list(starts), values, [], host_bytes, 0, limit, copy_limit)
        if plan is not None:
            decisions = [(buffer, use, OFFLOAD) for buffer, use in plan.offloads]
            measured = self.layout.measure(plan.order, decisions, 0, 1.0, True, copy_limit)
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


def test_least_bytes_with_offloads_by_hand():
    layout = LayoutGraph()
    x, g, w = (layout.add_buffer(name, size, name == "w", 0.0, 0.0) for name, size in (("x", 4), ("g", 3), ("w", 8)))
    make = layout.add_op("make", [w], [], [x], [], 1, 0.0)
    use = layout.add_op("use", [x], [], [g], [], 0, 0.0)
    planner = NestedPlanner(layout, [make, use], [x], [], 0, 0)
    assert planner.least_bytes_with_offloads([], []) == 8 + 4 + 3  # at `use`
    assert planner.least_bytes_with_offloads([], [w]) == 8 + 4 + 1  # at `make`, as the host has w at `use`


def test_no_plan_with_offloads_needs_less_than_the_least_bytes():
    found = 0
    for seed in range(1, 26):
        values = random_values(seed)
        least = values.planner.least_bytes_with_offloads(list(range(values.free.count)), [])
        assert values.mixed_plan(least - 1) is None
        most = values.live_bytes(values.order)
        for budget in range(least, most + 1, max(1, (most - least) // 8)):
            found += (plan := values.mixed_plan(budget)) is not None and plan.live_bytes == least
    assert found >= 10  # where the bound is the least that there is


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


def test_an_offload_that_is_waited_for_gives_way_to_a_recomputation():
    """With six values within 13 bytes, one second of recomputation is optimal, because waits for copies of any value
    take longer."""
    edges = [(0, 1), (0, 5), (1, 2), (2, 3), (2, 4), (3, 4), (3, 5), (4, 5)]
    values = Values([2, 1, 10, 1, 2, 2], [1, 1, 1, 1, 3, 2], edges, [2.0, 2.0, 1.0, 1.0, 2.0, 4.0])
    plan = values.mixed_plan(13, copy_limit=13)
    assert (plan.seconds, plan.offloads) == (18 + 1, [])


def test_where_copies_are_free_nothing_runs_again_and_where_they_are_dear_nothing_is_copied():
    """In the chain of four below, four bytes need one second of recomputation, or one value on the host."""
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


EXPONENTS = (
    (2, 2),
    (2, 1),
    (1, 1),
    (2, 3),
    (1, 2),
    (3, 2),
    (3, 3),
    (2, 0),
    (1, 0),
    (0, 1),
    (0, 2),
    (3, 1),
    (4, 2),
    (4, 3),
    (4, 4),
    (1, 3),
    (2, 4),
    (3, 4),
    (4, 1),
    (3, 0),
    (0, 0),
    (0, 3),
    (1, 4),
    (4, 0),
    (0, 4),
)


class PlainWalk:
    """The walk of native/planning/nested/lookahead.h over Values, which recomputes every need and cost each time."""

    def __init__(self, values):
        self.values, free, count = values, values.free, values.free.count
        self.count, self.size, self.time = count, free.size, free.time
        self.before = [values.members(free.before[v]) for v in range(count)]
        backward = list(reversed(range(count)))
        self.reads = [*self.before, *(values.members(free.reads[v]) for v in backward)]  # values, by position
        self.uses = [[p for p, reads in enumerate(self.reads) if v in reads] for v in range(count)]
        gradients = [values.members(free.after[v]) for v in backward]
        self.during, self.just_before = [0] * (2 * count), [0] * (2 * count)
        for v in range(count):  # gradient v: from its own op to the last one that reads it
            first = 2 * count - 1 - v
            last = max((count + i for i, reads in enumerate(gradients) if v in reads), default=first)
            for p in range(first, last + 1):
                self.during[p] += self.size[v]
                self.just_before[p] += self.size[v] if p > first else 0

    def run(self, budget, exponents, counts_ops=False):
        self.counts_ops = counts_ops
        self.resident, self.locked, self.result = set(), [0] * self.count, []
        for p, reads in enumerate(self.reads):
            chain = self.missing(reads)
            for v in [*reads, *(x for q in chain for x in self.before[q])]:
                self.locked[v] += 1
            for q in chain:
                for v in self.before[q]:
                    self.locked[v] -= 1
                if not self.run_op(self.before[q], [q], p, budget - self.just_before[p], q, exponents):
                    return None
            for v in reads:
                self.locked[v] -= 1
            writes = [p] if p < self.count else []
            if not self.run_op(reads, writes, p + 1, budget - self.during[p], p, exponents):
                return None
        return [self.values.order[op] for op in self.result]

    def missing(self, wanted):
        chain, stack = set(), [v for v in wanted if v not in self.resident]
        while stack:
            v = stack.pop()
            if v not in chain:
                chain.add(v)
                stack += [x for x in self.before[v] if x not in self.resident]
        return sorted(chain)

    def run_op(self, reads, writes, now, limit, op, exponents):
        self.resident |= set(writes)
        for v in writes:
            self.locked[v] += 1
        fits = self.used() <= limit or self.evict(reads, now, limit, exponents)
        for v in writes:
            self.locked[v] -= 1
        self.result.append(op)
        return fits

    def used(self):
        return sum(self.size[v] for v in self.resident)

    def evict(self, reads, now, limit, exponents):
        need, cost = [inf] * self.count, [0.0] * self.count
        self.find_costs(cost, 0)
        self.find_needs(need, self.count, now)
        free = [v for v in self.resident if not self.locked[v] and need[v] == inf and v not in reads]
        self.resident -= set(free)
        while self.used() > limit:
            best, most = None, -1.0
            for v in sorted(self.resident):
                if not self.locked[v] and self.size[v] and v not in reads:
                    distance = need[v] - now + 1
                    value = self.size[v] * halves(distance, exponents[0]) / halves(max(cost[v], 1e-12), exponents[1])
                    best, most = (v, value) if value > most else (best, most)
            if best is None:
                return False
            self.resident.remove(best)
            self.find_costs(cost, best + 1)
            self.find_needs(need, best, now)
        return True

    def find_costs(self, cost, first):
        for v in range(first, self.count):
            own = 1.0 if self.counts_ops else self.time[v]
            cost[v] = own + sum(cost[x] for x in self.before[v] if x not in self.resident)

    def find_needs(self, need, end, now):
        for v in reversed(range(end)):
            own = next((p for p in self.uses[v] if p >= now), inf)
            evicted = [w for w in range(self.count) if v in self.before[w] and w not in self.resident]
            need[v] = min([own, *(need[w] + 0.5 for w in evicted)])


def halves(x, count):
    result = sqrt(x) if count % 2 else 1.0
    for _ in range(count // 2):
        result *= x
    return result


@pytest.mark.samples(6)
@pytest.mark.parametrize("seed", range(1, 26))
def test_walks_are_those_that_form_every_need_and_cost_anew(seed):
    """Tests all walks of the search for the fewest bytes: bisections, then some below the minimum, by seconds and by
    ops."""
    values = random_values(seed)
    walk = PlainWalk(values)
    order = walk.run(2 * values.live_bytes(values.order), EXPONENTS[0])
    least = values.live_bytes(order), order

    def take(order):
        nonlocal least
        if order is not None and values.live_bytes(order) < least[0]:
            least = values.live_bytes(order), order

    for exponents in EXPONENTS:
        low, high = 0.0, 1.25 * least[0]
        for _ in range(10):
            middle = (low + high) / 2
            order = walk.run(int(middle), exponents)
            low, high = (middle, high) if order is None else (low, middle)
            take(order)
    for counts_ops in (False, True):
        for exponents in EXPONENTS:
            for step in range(16):
                take(walk.run(int((1 - step / 64) * least[0]), exponents, counts_ops))
    found = values.planner.minimum()
    assert (found.live_bytes, found.order) == least
