"""The dynamic program under the paper's formula, compared with every chain of every small graph."""

import random
from itertools import combinations

import pytest

from layermem._native import LowerSetPlanner, StepGraph


def random_dag(seed):
    """Times, sizes and edges of a graph with 1 to 8 nodes; sizes of 0 and equal sizes are common."""
    draw = random.Random(seed)
    count = draw.randint(1, 8)
    density = draw.choice((0.2, 0.4, 0.7))
    edges = [(u, v) for u, v in combinations(range(count), 2) if draw.random() < density]
    time = [draw.choice((1, 1, 2, 10)) for _ in range(count)]
    size = [draw.randint(0, 9) for _ in range(count)]
    return time, size, edges


def all_lower_sets(count, edges):
    sets = []
    for mask in range(1 << count):
        if all(mask >> u & 1 for u, v in edges if mask >> v & 1):
            sets.append(frozenset(v for v in range(count) if mask >> v & 1))
    return sets


class PaperFormula:
    """Kusumoto et al. 2019, section 3 and 4, set by set."""

    def __init__(self, time, size, edges):
        self.time, self.size, self.edges = time, size, edges
        self.whole = frozenset(range(len(time)))

    def after(self, nodes):
        return {v for u, v in self.edges if u in nodes}

    def before(self, nodes):
        return {u for u, v in self.edges if v in nodes}

    def boundary(self, lower):
        return self.before(self.whole - lower) & lower

    def extend(self, chain, last, lower):
        """(T, peak, U) of a chain that ends in `last`, extended by `lower`."""
        total, peak, kept = chain
        segment = lower - last
        gradients = self.after(lower) - lower
        values = self.before(self.after(lower)) - lower
        use = self.bytes(kept) + 2 * self.bytes(segment) + self.bytes(gradients) + self.bytes(values)
        total += sum(self.time[v] for v in segment - self.boundary(lower))
        return total, max(peak, use), kept | self.boundary(lower)

    def every_chain(self):
        """The (T, peak, M(U)) of all chains {} < L1 < ... < V; chains with equal results are merged."""
        sets = sorted(all_lower_sets(len(self.time), self.edges), key=len)
        reached = {lower: set() for lower in sets}
        reached[frozenset()] = {(0, 0, frozenset())}
        for last in sets:
            for lower in sets:
                if last < lower:
                    reached[lower] |= {self.extend(chain, last, lower) for chain in reached[last]}
        return {(total, peak, self.bytes(kept)) for total, peak, kept in reached[self.whole]}

    def bytes(self, nodes):
        return sum(self.size[v] for v in nodes)


def budgets_of(every):
    """Below, at and above the least peak, and a few in between."""
    peaks = sorted({peak for _, peak, _ in every})
    return {peaks[0] - 1, peaks[0], peaks[len(peaks) // 3], peaks[len(peaks) // 2], peaks[-1]}


@pytest.mark.samples(20)
@pytest.mark.parametrize("block", range(10))
def test_the_exact_family_finds_the_optimum_of_every_chain(block):
    for seed in range(block * 100, block * 100 + 100):
        time, size, edges = random_dag(seed)
        every = PaperFormula(time, size, edges).every_chain()
        graph = StepGraph.value_gradients(time, size, edges)
        planner = LowerSetPlanner(graph, family="exact", model="paper")
        assert planner.minimum().model_peak_bytes == min(peak for _, peak, _ in every)
        for budget in budgets_of(every):
            fits = [(total, kept) for total, peak, kept in every if peak <= budget]
            for objective, best in (("time", min), ("memory", max)):
                plan = planner.solve(budget, objective)
                if not fits:
                    assert plan is None and planner.proven_infeasible
                    continue
                total = best(total for total, _ in fits)
                assert plan.recompute_time == total, (seed, budget, objective)
                assert plan.kept_bytes == min(kept for t, kept in fits if t == total)
                assert plan.model_peak_bytes <= budget and plan.proven_optimal
