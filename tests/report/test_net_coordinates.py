"""Positions across the ranks."""

import itertools

import numpy as np
import pytest

from layermem.report.net_coordinates import spread


def test_a_chain_is_straight_and_a_fork_stands_around_its_source():
    x = spread([[0], [1], [2, 3]], [10.0] * 4, [(0, 1), (1, 2), (1, 3)], [False] * 4, 5.0)
    assert x[0] == pytest.approx(x[1], abs=0.1) and x[2] + x[3] == pytest.approx(2 * x[1], abs=0.1)
    assert x[3] - x[2] == pytest.approx(15)


def test_points_of_a_rank_keep_their_order_and_distance(rng):
    rows = [list(range(5 * i, 5 * i + 5)) for i in range(12)]
    widths = rng.uniform(1, 30, 60)
    edges = [(int(a), int(b)) for row, under in itertools.pairwise(rows) for a in row for b in rng.choice(under, 2)]
    x = spread(rows, [*map(float, widths)], edges, [bool(b) for b in rng.integers(0, 2, 60)], 4.0)
    assert np.isfinite(x).all()
    for row in rows:
        for left, right in itertools.pairwise(row):
            assert x[right] - x[left] >= (widths[left] + widths[right]) / 2 + 4 - 1e-6


def test_a_long_wire_is_straight_between_its_ends():
    count = 20  # a chain beside a wire from its first box to its last one
    rows = [[0], *([i, count + i] for i in range(1, count - 1)), [count - 1]]
    edges = [(i, i + 1) for i in range(count - 1)]
    bends = [*range(count + 1, 2 * count - 1)]
    edges += [*zip([0, *bends], [*bends, count - 1])]
    x = spread(rows, [20.0] * count + [2.0] * count, edges, [i >= count for i in range(2 * count)], 6.0)
    assert max(x[i] for i in bends) - min(x[i] for i in bends) < 4
