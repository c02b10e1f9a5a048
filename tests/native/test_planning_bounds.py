"""The native bounds of a step, fed by hand; tests/planning/test_bounds.py has graphs and optima."""

from itertools import combinations
from math import inf
from random import Random

import pytest

from layermem._native import StepBounds


def op(seconds, reads, writes):
    return (seconds, 0, reads, [], writes, [])


def diamond():
    """a -> b, c, and from them e, of no bytes; then d takes 40 bytes, and b and c are read again after it."""
    step = StepBounds(1e9, 1e9)
    a, b, c, d, e, f = (step.add_buffer(nbytes, False) for nbytes in (10, 10, 10, 40, 0, 0))
    step.add_op(op(1.0, [], [a]))
    for value, seconds in ((b, 3.0), (c, 5.0)):
        step.add_op(op(seconds, [a], [value]), op(seconds, [a], [value]))
    for reads, writes in (([a, b, c], [e]), ([e], [d]), ([d], [f]), ([b, c, f], [])):
        step.add_op(op(1.0, reads, writes))
    return step


def test_what_two_values_follow_from_is_held_once():
    """During d, memory holds b and c in 20 bytes, or one of them and a in 20, or only a in 10, and both are
    recomputed."""
    step = diamond()
    once = 13.0
    assert step.least_seconds([70, 60, 50, 49], 0) == pytest.approx([once, once, once + 8.0, inf])
    assert step.least_seconds([55], 0) == pytest.approx([once + 8.0])  # a relaxation would hold half a value: 4
    assert (step.least_bytes(0), step.least_bytes(5), step.least_bytes()) == (50, 45, 40)


def knapsack(bytes_and_seconds, large_bytes):
    """Values that are made before an op with a large output, each by an op that can run again, and read after it."""
    step = StepBounds(1e9, 1e9)
    values = []
    for nbytes, seconds in bytes_and_seconds:
        values.append(step.add_buffer(nbytes, False))
        step.add_op(op(seconds, [], [values[-1]]), op(seconds, [], [values[-1]]))
    made, large, end = (step.add_buffer(nbytes, False) for nbytes in (0, large_bytes, 0))
    for reads, writes in ((values, [made]), ([made], [large]), ([large], [end]), ([*values, end], [])):
        step.add_op(op(0.0, reads, writes))
    return step


@pytest.mark.parametrize("seed", range(20))
def test_values_are_held_whole_or_not_at_all(seed):
    random = Random(seed)
    items = [(random.randint(1, 30), float(random.randint(1, 30))) for _ in range(11)]
    once, sum_bytes = sum(seconds for _, seconds in items), sum(nbytes for nbytes, _ in items)
    step = knapsack(items, 100)
    # all values are in use at once before the large op, so that many bytes are there
    budgets = sorted(random.sample(range(sum_bytes, sum_bytes + 100), 8))
    sets = [sum(set_of, ()) for size in range(12) for set_of in combinations(items, size)]
    held = [(sum(each[::2]), sum(each[1::2])) for each in sets]  # of every set of items: bytes, seconds
    least = [once - max(seconds for nbytes, seconds in held if nbytes <= budget - 100) for budget in budgets]
    assert step.least_seconds(budgets, 0) == pytest.approx([once + again for again in least])


def test_a_long_search_ends_with_a_bound():
    """A subset of given bytes, nearly: the search ends by its steps, between the relaxation and the optimum."""
    random = Random(0)
    items = [(nbytes, 1.0 + nbytes / 1e6) for nbytes in random.sample(range(10**6, 2 * 10**6), 60)]
    sum_bytes, once = sum(nbytes for nbytes, _ in items), sum(seconds for _, seconds in items)
    [least] = knapsack(items, sum_bytes // 2).least_seconds([sum_bytes], 0)
    gives_way, relaxed = 0, 0.0
    for nbytes, seconds in sorted(items, reverse=True):  # the largest have the fewest seconds a byte
        share = min(1.0, (sum_bytes // 2 - gives_way) / nbytes)
        gives_way, relaxed = gives_way + share * nbytes, relaxed + share * seconds
    assert once + relaxed - 1e-6 <= least <= once + relaxed + 1.0


def test_an_unknown_buffer_is_refused():
    step = diamond()
    with pytest.raises(IndexError, match="no buffer 9"):
        step.add_op(op(1.0, [9], []))
    with pytest.raises(IndexError, match="no buffer -1"):
        step.add_op(op(1.0, [], []), op(1.0, [], [-1]))


def test_a_step_without_ops_takes_nothing():
    step = StepBounds(1.0, 1.0)
    assert (step.least_bytes(0), step.least_seconds([0], 0)) == (0, [0.0])
