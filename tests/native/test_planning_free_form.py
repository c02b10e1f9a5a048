"""No plan of the dynamic program is below the optimum of all schedules, found by searching all states.

A state is (values computed once, values resident, gradients formed).  A value may be computed, also repeatedly, when
its inputs are resident, and dropped at any time; a gradient is formed once, and freed after the last gradient that
reads it.
"""

import random
from heapq import heappop, heappush
from itertools import combinations

import pytest

from layermem._native import LowerSetPlanner, StepGraph


class FreeForm:
    def __init__(self, time, size, edges):
        self.time, self.size, self.count = time, size, len(time)
        self.before = [sum(1 << u for u, w in edges if w == v) for v in range(self.count)]
        self.after = [sum(1 << w for u, w in edges if u == v) for v in range(self.count)]
        self.bytes = [sum(size[v] for v in range(self.count) if s >> v & 1) for s in range(1 << self.count)]
        self.all = (1 << self.count) - 1
        self.reads = [
            self._or(self.before[w] for w in range(self.count) if self.after[v] >> w & 1) for v in range(self.count)
        ]

    def _or(self, masks):
        total = 0
        for mask in masks:
            total |= mask
        return total

    def gradients(self, formed):
        """Bytes of the gradients that some unformed gradient reads."""
        return sum(self.size[v] for v in range(self.count) if formed >> v & 1 and self.before[v] & ~formed)

    def least_time(self, budget):
        """The least recomputation of any schedule within `budget` bytes, or None."""
        best = {(0, 0, 0): 0}
        heap = [(0, (0, 0, 0))]
        while heap:
            spent, state = heappop(heap)
            if spent > best[state]:
                continue
            if state[0] == state[2] == self.all:
                return spent
            for cost, following in self.steps(state, budget):
                if spent + cost < best.get(following, 1 << 60):
                    best[following] = spent + cost
                    heappush(heap, (spent + cost, following))
        return None

    def least_seconds(self, budget, copies):
        """A lower bound of the seconds of any schedule within `budget` bytes that may also fetch values over a link, or
        None.

        Fetching v takes copies[v] seconds in parallel with the ops, one value at a time; offloading is free.  Labels
        are seconds of recomputation and of the link that do not dominate each other."""
        found, heap = {}, [(0, 0, (0, 0, 0))]
        ends = []
        while heap:
            spent, link, state = heappop(heap)
            if any(other <= link for other in found.setdefault(state, [])):
                continue  # labels come in the order of their first number
            found[state].append(link)
            if state[0] == state[2] == self.all:
                ends.append(max(sum(self.time) + spent, link))
                continue
            for cost, following in self.steps(state, budget):
                heappush(heap, (spent + cost, link, following))
            computed, resident, formed = state
            free = budget - self.bytes[resident] - self.gradients(formed)
            for v in range(self.count):
                if computed & ~resident & 1 << v and self.size[v] <= free:
                    heappush(heap, (spent, link + copies[v], (computed, resident | 1 << v, formed)))
        return min(ends, default=None)

    def steps(self, state, budget):
        computed, resident, formed = state
        free = budget - self.bytes[resident] - self.gradients(formed)
        for v in range(self.count):
            bit = 1 << v
            if resident & bit:
                yield 0, (computed, resident & ~bit, formed)
            elif self.before[v] & ~resident == 0 and self.size[v] <= free:
                yield (self.time[v] if computed & bit else 0), (computed | bit, resident | bit, formed)
            ready = not formed & bit and self.after[v] & ~formed == 0 and self.reads[v] & ~resident == 0
            if ready and self.size[v] <= free:
                yield 0, (computed, resident, formed | bit)


def random_dag(seed):
    draw = random.Random(seed)
    count = draw.choice((2, 3, 4, 4, 4, 5)) if seed % 10 == 0 else draw.choice((2, 3, 4, 4))
    edges = [pair for pair in combinations(range(count), 2) if draw.random() < draw.choice((0.3, 0.6))]
    return [draw.choice((1, 2, 10)) for _ in range(count)], [draw.randint(0, 9) for _ in range(count)], edges


@pytest.mark.parametrize("block", range(4))
def test_no_plan_passes_below_the_optimum_of_all_schedules(block):
    for seed in range(50 * block, 50 * block + 50):
        time, size, edges = random_dag(seed)
        free = FreeForm(time, size, edges)
        for model in ("live", "paper"):
            planner = LowerSetPlanner(StepGraph.value_gradients(time, size, edges), family="exact", model=model)
            least = planner.minimum()
            for budget in {least.model_peak_bytes, (least.model_peak_bytes + 2 * sum(size)) // 2}:
                for objective in ("time", "memory"):
                    plan = planner.solve(budget, objective)
                    bound = free.least_time(plan.peak_bytes)
                    assert bound is not None and bound <= plan.recompute_time, (seed, model, budget, objective)


def test_the_optimum_of_a_chain_by_hand():
    """a b c, 1 byte each: dc, db and b meet when db is formed; a, 5 to compute, is there too, or computed again."""
    free = FreeForm([5, 1, 1], [1, 1, 1], [(0, 1), (1, 2)])
    assert [free.least_time(budget) for budget in (2, 3, 4)] == [None, 5, 0]
