"""Positions across the ranks of a layered drawing, for points whose order in each rank is fixed.

Each point moves to the mean of its neighbours in the ranks above, below, or both, as far as the order and the distances
of its rank permit; the positions of a rank are then a least-squares solution (isotonic regression by merging
neighbours that collide).  Pieces of long wires pull harder than boxes, so that they become straight.

source  Gansner, Koutsofios, North, Vo: A technique for drawing directed graphs, 1993, for the weights of edges; Barlow
        et al.: Statistical inference under order restrictions, 1972, for pooling adjacent violators
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

WEIGHTS = (1.0, 2.0, 16.0)  # weight of an edge, by the number of its ends that are bends of a wire
CHAIN = 16.0  # weight of the only edge between two points
DOWN, UP = (True, False), (False, True)  # use neighbours in the rank above, in the rank below
PASSES = (DOWN, UP) * 4 + ((True, True),) * 8


def spread(
    rows: Sequence[Sequence[int]],
    widths: Sequence[float],
    edges: Sequence[tuple[int, int]],
    bends: Sequence[bool],
    gap: float,
) -> list[float]:
    """The centre of each point.

    rows     the points of each rank, in their order
    edges    (point, point in the next rank)
    bends    whether a point is a bend of a wire
    gap      between two neighbours of a rank, in addition to their widths
    """
    above: list[list[tuple[int, float]]] = [[] for _ in widths]
    below: list[list[tuple[int, float]]] = [[] for _ in widths]
    leaving, entering = Counter(first for first, _ in edges), Counter(second for _, second in edges)
    for first, second in edges:
        weight = WEIGHTS[bends[first] + bends[second]]
        if leaving[first] == entering[second] == 1:
            weight = max(weight, CHAIN)
        above[second].append((first, weight))
        below[first].append((second, weight))
    offsets = [0.0] * len(widths)  # distance of each point from the first one of its rank
    for row in rows:
        for left, right in itertools.pairwise(row):
            offsets[right] = offsets[left] + (widths[left] + widths[right]) / 2 + gap
    x = [*offsets]
    for row in rows:
        middle = (offsets[row[0]] + offsets[row[-1]]) / 2 if row else 0.0
        for point in row:
            x[point] -= middle
    for use_above, use_below in PASSES:
        for row in rows if use_above else reversed(rows):
            _place_row(row, x, offsets, above if use_above else None, below if use_below else None)
    return x


def _place_row(
    row: Sequence[int],
    x: list[float],
    offsets: Sequence[float],
    above: Sequence[Sequence[tuple[int, float]]] | None,
    below: Sequence[Sequence[tuple[int, float]]] | None,
) -> None:
    """Move the points of one rank."""
    blocks: list[list[float]] = []  # weight, weight times position, number of points
    for point in row:
        total, weight = 0.0, 0.0
        for neighbours in (above, below):
            for other, pull in neighbours[point] if neighbours is not None else ():
                total, weight = total + pull * x[other], weight + pull
        if not weight:
            total, weight = 0.01 * x[point], 0.01
        block = [weight, total - weight * offsets[point], 1]
        while blocks and blocks[-1][1] * block[0] > block[1] * blocks[-1][0]:  # it would collide with the block before
            block = [a + b for a, b in zip(blocks.pop(), block)]
        blocks.append(block)
    points = iter(row)
    for weight, total, count in blocks:
        for _ in range(int(count)):
            point = next(points)
            x[point] = total / weight + offsets[point]
