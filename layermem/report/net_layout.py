"""Computes the positions of boxes and wires in a picture of a net: in ranks, by the method of Sugiyama.

Boxes get the ranks of net_picture.py, igraph orders each rank, and net_coordinates.py sets the distances.

Units are pixels of the picture.  With rankdir TB ranks run downwards, with LR to the right.

    points of a wire   the exit from its box, the entry into and exit from each rank that it crosses, and the entry into
                       its box: curves between ranks, straight lines within them
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from igraph import Graph

from layermem.report.net_coordinates import spread
from layermem.report.net_picture import NetBox, NetPicture, Wire, ranks_of

LINE, PADDING = 17, 7  # height of a line of a box; space above and below all lines
STRIPE = 6  # width of the stripe at the left side, in the hue of the layer type
BETWEEN_RANKS, BETWEEN_BOXES, WIRE_WIDTH = 34, 22, 4
MIN_WIDTH, MAX_WIDTH = 150, 330
GAP_OF_TEXTS = 14  # between the two texts of a line
RIGHT_SIZE = 0.88  # relative size of the text on the right of a line
ROUNDS = 100  # iterations of the search for fewer crossings
MARGIN = 24
NARROW, WIDE = set("iljtfrI.,:;'|!()[]/ "), set("mwMW@%")
# Widths of characters of a font of 12.5 pixels.
NARROW_WIDTH, WIDE_WIDTH, UPPER_WIDTH, OTHER_WIDTH = 3.7, 10.6, 8.4, 7.0
Point = tuple[float, float]


@dataclass(frozen=True)
class Placed:
    """A box with its upper left corner."""

    box: NetBox
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Frame:
    """A frame around the boxes of a repeated stage."""

    x: float
    y: float
    width: float
    height: float
    text: str
    tooltip: str


@dataclass(frozen=True)
class Route:
    wire: Wire
    points: tuple[Point, ...]


@dataclass(frozen=True)
class NetLayout:
    """Positions of boxes, wires and frames; with `down`, ranks run downwards."""

    width: float
    height: float
    down: bool
    boxes: tuple[Placed, ...]
    routes: tuple[Route, ...]
    frames: tuple[Frame, ...]


def text_width(text: str) -> float:
    """Estimate the width of `text` in pixels, in a sans-serif font of 12.5 pixels."""
    return sum(
        NARROW_WIDTH
        if c in NARROW
        else WIDE_WIDTH
        if c in WIDE or ord(c) > 0x2E80
        else UPPER_WIDTH
        if c.isupper()
        else OTHER_WIDTH
        for c in text
    )


def clip(text: str, width: float) -> str:
    """Return `text`, or its beginning and an ellipsis if it is wider than `width`."""
    if text_width(text) <= width:
        return text
    while text and text_width(text) + OTHER_WIDTH > width:
        text = text[:-1]
    return text + "…"


def arrange(picture: NetPicture, *, down: bool = True) -> NetLayout:
    """Return the positions of everything in `picture`."""
    boxes, wires = picture.boxes, picture.wires
    width = min(max([MIN_WIDTH, *(_needed_width(box) for box in boxes if not box.reference)]), MAX_WIDTH)
    widths = [min(_needed_width(box), width) if box.reference else width for box in boxes]
    heights = [LINE * (len(box.layers) + len(box.tops)) + 2 * PADDING for box in boxes]
    along, sideways = (heights, widths) if down else (widths, heights)
    rank = ranks_of(len(boxes), wires)
    centres, bends = _across(rank, wires, sideways)
    extents = [0.0] * (max(rank) + 1)  # extent of each rank, in the direction of ranks
    for index, level in enumerate(rank):
        extents[level] = max(extents[level], along[index])
    begins = [float(MARGIN)]
    for extent in extents:
        begins.append(begins[-1] + extent + BETWEEN_RANKS)
    placed = []
    for index, box in enumerate(boxes):
        u, v = begins[rank[index]], centres[index] - sideways[index] / 2
        x, y = (v, u) if down else (u, v)
        placed.append(Placed(box, x, y, widths[index], heights[index]))
    ports = _ports(wires, centres, bends, [each / 2 for each in sideways])
    routes = []
    for number, wire in enumerate(wires):
        source, target = wire.source, wire.target
        points: list[Point] = [(begins[rank[source]] + along[source], centres[source])]
        for level, v in enumerate(bends[number], start=rank[source] + 1):
            points += [(begins[level], v), (begins[level] + extents[level], v)]
        points.append((begins[rank[target]], ports[number]))
        routes.append(Route(wire, tuple((v, u) if down else (u, v) for u, v in points)))
    frames = tuple(
        _frame(placed[stage.first : stage.first + stage.period], f"x{stage.count}", stage.tooltip)
        for stage in picture.stages
    )
    right = max([*(p.x + p.width for p in placed), *(x for route in routes for x, _ in route.points)])
    bottom = max([*(p.y + p.height for p in placed), *(y for route in routes for _, y in route.points)])
    return NetLayout(right + MARGIN, bottom + MARGIN, down, tuple(placed), tuple(routes), frames)


def _across(
    rank: Sequence[int], wires: Sequence[Wire], sizes: Sequence[float]
) -> tuple[list[float], list[list[float]]]:
    """Positions across the ranks: of the centres of all boxes, and of each wire in each rank that it crosses.

    igraph orders each rank for few crossings; its positions may overlap, and are replaced.
    """
    count = len(rank)
    graph = Graph(n=count, edges=[(wire.source, wire.target) for wire in wires], directed=True)
    found = graph.layout_sugiyama(layers=rank, hgap=1, vgap=1, maxiter=ROUNDS)
    position = [float(place[0]) for place in found]
    level, widths = [*rank], [*sizes]
    edges: list[tuple[int, int]] = []
    chains = []  # the points of each wire between its boxes
    routed = graph.is_connected(mode="weak")  # igraph confuses the bends of edges if there are several components
    for wire, bends in zip(wires, found.edge_routing):
        crossed = rank[wire.target] - rank[wire.source] - 1
        chain = [*range(len(position), len(position) + crossed)]
        middle = (position[wire.source] + position[wire.target]) / 2
        position += [float(bend[0]) for bend in bends] if routed else [middle] * crossed
        level += range(rank[wire.source] + 1, rank[wire.target])
        widths += [WIRE_WIDTH] * crossed
        ends = [wire.source, *chain, wire.target]
        edges += itertools.pairwise(ends)
        chains.append(chain)
    rows: list[list[int]] = [[] for _ in range(max(rank) + 1)]
    for point in sorted(range(len(position)), key=position.__getitem__):
        rows[level[point]].append(point)
    x = spread(rows, widths, edges, [point >= count for point in range(len(position))], BETWEEN_BOXES)
    low = min(centre - width / 2 for centre, width in zip(x, widths)) - MARGIN
    x = [centre - low for centre in x]
    return x[:count], [[x[point] for point in chain] for chain in chains]


def _needed_width(box: NetBox) -> float:
    texts = (text_width(line.left) + RIGHT_SIZE * text_width(line.right) for line in (*box.layers, *box.tops))
    return max(texts) + GAP_OF_TEXTS + (4 + box.ends) * PADDING + STRIPE


def _ports(
    wires: Sequence[Wire], centre: Sequence[float], bends: Sequence[Sequence[float]], half: Sequence[float]
) -> list[float]:
    """The position at which each wire enters its box; wires of one box are ordered by their origin."""
    entering: dict[int, list[int]] = {}
    for number, wire in enumerate(wires):
        entering.setdefault(wire.target, []).append(number)
    ports = [0.0] * len(wires)
    for target, numbers in entering.items():
        numbers.sort(key=lambda n: bends[n][-1] if bends[n] else centre[wires[n].source])
        for place, number in enumerate(numbers, start=1):
            share = 2 * place / (len(numbers) + 1) - 1
            ports[number] = centre[target] + share * half[target]
    return ports


def _frame(placed: Sequence[Placed], text: str, tooltip: str) -> Frame:
    left, top = min(p.x for p in placed), min(p.y for p in placed)
    right, bottom = max(p.x + p.width for p in placed), max(p.y + p.height for p in placed)
    gap = BETWEEN_BOXES / 2 - 2
    return Frame(left - gap, top - gap, right - left + 2 * gap, bottom - top + 2 * gap, text, tooltip)
