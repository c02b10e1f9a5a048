"""The families of lower sets, and the result of a search with a time limit."""

import random
from functools import cache
from itertools import combinations

import pytest

from layermem._native import LowerSetPlanner, StepGraph
from tests.native.test_planning_paper_formula import all_lower_sets

WIDE = [(0, v) for v in range(1, 15)] + [(v, 15) for v in range(1, 15)]  # 2 ** 14 lower sets between two bottlenecks
DIAMOND = [(15, 16), (16, 17), (15, 18), (17, 19), (18, 19)]  # 4 more where 18 runs before 16 or 17


def graph(count, edges, size=None):
    draw = random.Random(count)
    size = size or [draw.randint(1, 9) for _ in range(count)]
    return StepGraph.value_gradients([draw.choice((1, 10)) for _ in range(count)], size, edges)


@cache
def minimum_of_wide():
    """The least budget of the exact family of WIDE and DIAMOND, which takes a second, and the planner that knows it."""
    planner = LowerSetPlanner(graph(20, WIDE + DIAMOND), family="exact")
    return planner.minimum(), planner


def family(count, edges, name, **more):
    sets = LowerSetPlanner(graph(count, edges), family=name, **more).sets()
    assert [len(s) for s in sets] == sorted(len(s) for s in sets) and len(sets) == len(set(map(tuple, sets)))
    return {frozenset(members) for members in sets}


def random_edges(seed, most=9):
    draw = random.Random(seed)
    count = draw.randint(1, most)
    return count, [pair for pair in combinations(range(count), 2) if draw.random() < draw.choice((0.2, 0.5))]


@pytest.mark.parametrize("seed", range(30))
def test_each_family_holds_the_one_before_and_exact_holds_all(seed):
    count, edges = random_edges(seed)
    approx, extended, exact = (family(count, edges, name) for name in ("approx", "extended", "exact"))
    assert {frozenset(), frozenset(range(count))} <= approx <= extended <= exact == set(all_lower_sets(count, edges))
    assert extended == exact  # there are few


def test_the_extended_family_has_all_sets_of_narrow_parts_and_few_of_a_wide_one():
    extended = family(20, WIDE + DIAMOND, "extended")
    below = frozenset(range(16))
    assert {below | {18}, below | {16, 18}, below | {16, 17}, below | {16, 17, 18}} <= extended
    assert len(extended) <= 3 * 20 + 2 + 8
    assert len(family(20, WIDE + DIAMOND, "exact")) > 2**14


@pytest.mark.parametrize("seed", range(30))
def test_a_segment_ends_only_where_it_may(seed):
    count, edges = random_edges(seed)
    ends = set(random.Random(seed).sample(range(count), count // 2))

    def ends_well(members):
        return all(v in ends or any((v, w) in edges for w in members) for v in members)

    free = family(count, edges, "exact")
    restricted = family(count, edges, "exact", ends=sorted(ends))
    assert restricted == {s for s in free if ends_well(s)} | {frozenset(), frozenset(range(count))}


def test_an_end_that_is_no_node_is_refused():
    with pytest.raises(ValueError, match="there is no node 5"):
        LowerSetPlanner(graph(3, [(0, 1)]), ends=[5])


@pytest.mark.whole
def test_the_least_budget_keeps_what_was_found_when_the_time_is_up():
    proven, _ = minimum_of_wide()
    planner = LowerSetPlanner(graph(20, WIDE + DIAMOND), family="exact")
    limit, peaks, done = 1e-9, [], False
    while not done:
        found = planner.minimum(step_seconds=limit)
        peaks, done, limit = [*peaks, found.model_peak_bytes], found.proven_optimal, 8 * limit
    assert len(peaks) > 2 and peaks == sorted(peaks, reverse=True)
    assert peaks[0] > peaks[-1] == proven.model_peak_bytes and proven.proven_optimal


def test_a_limit_counts_steps_so_that_an_interrupted_search_gives_the_same_answer_every_time():
    answers = set()
    for _ in range(3):
        planner = LowerSetPlanner(graph(20, WIDE + DIAMOND), family="exact")
        found = planner.minimum(step_seconds=2e-4)
        chain = planner.solve(found.model_peak_bytes, step_seconds=2e-4)
        answers.add((found.model_peak_bytes, found.proven_optimal, str(found.lower_sets), str(chain.lower_sets)))
    assert len(answers) == 1 and not found.proven_optimal


@pytest.mark.whole
def test_a_search_out_of_time_gives_the_best_it_knows_and_does_not_call_it_proven():
    minimum, planner = minimum_of_wide()
    budget = minimum.model_peak_bytes
    hasty = planner.solve(budget, step_seconds=1e-9)
    assert hasty.model_peak_bytes <= budget and not hasty.proven_optimal
    calm = planner.solve(budget)
    assert calm.proven_optimal and calm.recompute_time <= hasty.recompute_time
    assert LowerSetPlanner(graph(20, WIDE + DIAMOND), family="exact").solve(budget, step_seconds=1e-9) is None


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", ["approx", "extended", "exact"])
def test_a_chain_may_fit_from_the_least_peak_of_its_family_on(seed, name):
    count, edges = random_edges(seed)
    least = LowerSetPlanner(graph(count, edges), family=name).minimum().model_peak_bytes
    planner = LowerSetPlanner(graph(count, edges), family=name)
    assert [planner.may_fit(least + more) for more in (-2, -1, 0, 1)] == [False, False, True, True]
    assert planner.solve(least - 1) is None and planner.proven_infeasible
    found = planner.solve(least)
    assert found is not None and found.model_peak_bytes == least


def test_a_chain_may_fit_while_a_limit_leaves_that_open():
    least = minimum_of_wide()[0].model_peak_bytes
    assert LowerSetPlanner(graph(20, WIDE + DIAMOND), family="exact").may_fit(least - 1, step_seconds=1e-9)
