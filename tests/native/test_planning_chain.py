"""The dynamic program over blocks: by hand, compared with all schedules of short chains, and its orders in a layout."""

import heapq
import random
from itertools import count, product
from math import inf

import pytest

from layermem._native import ChainProgram, NestedPlanner, SearchSettings
from tests.native.test_planning_nested import Values


def uniform(blocks, bytes_):
    """Blocks of one value of a byte; backward takes its gradient and that of the boundary before it."""
    plans = [[(i + 1, 0, 1, 2, 1.0, 0.0)] for i in range(blocks)]
    return ChainProgram([1] * (blocks - 1) + [0], [0] * blocks, [1] * blocks, [1.0] * blocks, plans, bytes_, bytes_)


@pytest.mark.parametrize(("bytes_", "seconds"), [(4, 0), (3, 1), (2, inf)])
def test_a_chain_of_three_by_hand(bytes_, seconds):
    """At the backward of the last block, memory holds the two gradients and x0 and x1, or only x1 (which is required),
    and the first block runs again."""
    assert uniform(3, bytes_).least_seconds(bytes_) == seconds


def test_a_chain_of_five_runs_the_first_block_again_for_each_boundary_that_is_dropped():
    """Within three bytes one boundary lies beside two gradients: forward begins anew for 3, 2 and 1 blocks."""
    program = uniform(5, 6)
    assert [program.least_seconds(units) for units in (6, 5, 4, 3, 2)] == [0, 1, 2, 6, inf]
    assert program.steps(2) == []


def test_a_kept_value_saves_its_recomputation_where_there_are_bytes():
    """The first block has three choices: keep 3 bytes, run forward again in 2 s, or recompute in 5 s."""
    plans = [[(1, 0, 1, 4, 2.0, 5.0), (1, 3, 4, 4, 2.0, 0.0)], [(2, 0, 1, 2, 1.0, 0.0)]]
    program = ChainProgram([1, 0], [0, 0], [1, 1], [2.0, 1.0], plans, 8, 8)
    assert [program.least_seconds(units) for units in (6, 5, 4, 3)] == [0, 2, 2, inf]
    assert program.steps(6) == [(0, 1, 1, True), (1, 2, 0, True), (1, 2, 0, False), (0, 1, 1, False)]


class AllSchedules:
    """Dijkstra's algorithm over all schedules of blocks with separate plans: held values stay until their backward.

    state   (block whose backward is next, blocks that ran, boundaries held, plan per block that is kept or -1)
    """

    def __init__(self, boundary, base, forward, seconds, plans):
        self.boundary, self.base, self.forward, self.seconds, self.plans = boundary, base, forward, seconds, plans
        self.blocks = len(boundary)

    def least_seconds(self, most):
        start = (self.blocks - 1, 0, frozenset(), (-1,) * self.blocks)
        best, number = {start: 0.0}, count()
        queue = [(0.0, next(number), start)]
        while queue:
            cost, _, state = heapq.heappop(queue)
            if state[0] < 0:
                return cost
            if cost > best[state]:
                continue
            for seconds, after in self.moves(state, most):
                if cost + seconds < best.get(after, inf):
                    best[after] = cost + seconds
                    heapq.heappush(queue, (best[after], next(number), after))
        return inf

    def moves(self, state, most):
        t, ran, held, kept = state
        first = t == self.blocks - 1
        inside = [self.plans[i][j][1] if j >= 0 else 0 for i, j in enumerate(kept)]
        live = sum(self.boundary[i] for i in held) + sum(inside)
        for s in range(t):  # from a boundary that is held, or the input, to one further on
            if (s and s - 1 not in held) or (first and s != ran):
                continue
            if s not in held and kept[s] < 0:  # one block, with the values that its plan keeps
                for j, plan in enumerate(self.plans[s]):
                    if live + plan[2] + self.base[t] <= most:
                        after = (t, max(ran, s + 1), held | {s}, (*kept[:s], j, *kept[s + 1 :]))
                        yield (0 if first else plan[4]), after
            peak = 0
            for end in range(s, t):
                peak = max(peak, self.forward[end] + (self.boundary[end - 1] if end > s else 0))
                if live + peak + self.base[t] > most or end in held:
                    break
                yield 0 if first else sum(self.seconds[s : end + 1]), (t, max(ran, end + 1), held | {end}, kept)
        if (t and t - 1 not in held) or (first and ran < t):
            return
        held, after_kept = held - {t - 1, t}, (*kept[:t], -1, *kept[t + 1 :])
        around = live - inside[t] - (self.boundary[t] if t in state[2] else 0)
        for j, plan in enumerate(self.plans[t]):
            if kept[t] >= 0 and j != kept[t]:
                continue
            runs = kept[t] < 0 and (first or plan[1] > 0)
            need = max(plan[3], plan[2] + self.base[t]) if runs else plan[3]
            if around + need <= most:
                yield plan[5] + (plan[4] if runs and not first else 0), (t - 1, ran, held, after_kept)


def random_chain(draw):
    blocks = draw.randint(2, 5)
    boundary = [draw.randint(1, 3) for _ in range(blocks - 1)] + [0]
    base = [draw.randint(0, 2) for _ in range(blocks)]
    base[draw.randrange(blocks)] = 0
    forward = [size + draw.randint(0, 2) for size in boundary]
    seconds = [float(draw.randint(1, 5)) for _ in range(blocks)]
    plans = []
    for i in range(blocks):
        nothing = (i + 1, 0, forward[i], draw.randint(2, 6), seconds[i], float(draw.randint(0, 4)))
        inside = draw.randint(1, 3)
        plans.append([nothing, (i + 1, inside, forward[i] + inside, nothing[3] + draw.randint(0, 1), seconds[i], 0.0)])
    return boundary, base, forward, seconds, plans


@pytest.mark.parametrize("seed", range(4))
def test_it_is_the_optimum_of_all_schedules_of_short_chains(seed):
    draw = random.Random(seed)
    finite = 0
    for _ in range(15):
        chain = random_chain(draw)
        program, every = ChainProgram(*chain, 24, 24), AllSchedules(*chain)
        for units in (4, 6, 8, 10, 12, 16, 24):
            optimum = every.least_seconds(units)
            assert program.least_seconds(units) == optimum, (chain, units)
            finite += optimum < inf
    assert finite > 40


@pytest.mark.parametrize("seed", range(3))
def test_its_orders_fit_and_are_not_below_the_optimum_of_all_orders(seed):
    """Values in a chain, of which some are read by the one after the next too; walks have no work, so only it plans."""
    draw, made = random.Random(seed), 0
    for values in (5, 6, 7):
        edges = [(v, v + 1) for v in range(values - 1)] + [(v, v + 2) for v in range(0, values - 2, 3)]
        graph = Values([draw.randint(1, 9) for _ in range(values)], [draw.randint(1, 9) for _ in range(values)], edges)
        planner = planner_without_walks(graph)
        most = graph.live_bytes(graph.order)
        for budget in range(most // 2, most + 1, 3):
            plan = planner.plan(budget, [])
            if plan is None:
                continue
            made += 1
            assert plan.live_bytes == graph.live_bytes(plan.order) <= budget
            optimum = graph.free.least_time(budget)
            assert optimum is not None and plan.recompute_seconds >= optimum
            assert plan.order == planner.plan(budget, []).order
    assert made


def test_without_bottlenecks_and_with_values_that_hints_drop_there_is_no_plan():
    edges = [pair for pair in product(range(5), repeat=2) if pair[0] < pair[1]]
    assert planner_without_walks(Values([1] * 5, [1] * 5, edges)).plan(100, []) is None
    chain = Values([1] * 6, [1] * 6, [(v, v + 1) for v in range(5)])
    for dropped, found in (([], True), ([2], False)):
        assert (planner_without_walks(chain, dropped).plan(100, []) is not None) == found


def planner_without_walks(values, dropped=()):
    settings = SearchSettings()
    settings.walk_steps = 0
    count = len(values.order) // 2
    return NestedPlanner(values.layout, values.order, list(range(count)), dropped, count, 0, settings)
