"""The tile table of layermem/backends/cuda/implicit_gemm.py that fits measured times: python -m tools.gpu.fit_tiles
tile_times.json

implicit_gemm.tile_for chooses the tile with the least  ceil(tiles / slots) * m * n * cost.  `slots` and the cost of
each tile are what is fitted: those under which the tiles that it chooses for fprop and dgrad take least time, over
all shapes, as often as the nets have them.  One table for all precisions, as there is now, and one for each.
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from layermem.backends.cuda.implicit_gemm import SMS, TILES
from layermem.backends.cuda.launch import ceil_div

Line = Mapping[str, Any]
SLOTS = (SMS, 132, 2 * SMS, 2 * 132, 3 * SMS, 4 * SMS)
RATIOS = tuple(1.08**step for step in range(11))  # of costs, to that of the largest tile: 1 to 2.2


class Case:
    """An op of one shape: milliseconds by tile, and what the choice depends on."""

    def __init__(self, lines: Sequence[Line]):
        first = lines[0]
        self.m, self.n, self.repeat, self.count = first["m"], first["n_columns"], first["repeat"], first["count"]
        self.ms = {line["tile"]: line["ms"] for line in lines}

    def chosen(self, slots: int, costs: Mapping[str, float]) -> str:
        """As tile_for() would, among the tiles that were tried."""

        def cost(tile: Any) -> float:
            tiles = ceil_div(self.m, tile.m) * ceil_div(self.n, tile.n) * self.repeat
            return ceil_div(tiles, slots) * tile.m * tile.n * costs[tile.name]

        return min((tile for tile in TILES if tile.name in self.ms), key=cost).name


def cases(lines: Iterable[Line]) -> dict[str, list[Case]]:
    """Those of fprop and dgrad by precision."""
    found: dict[tuple[str, str, str], list[Line]] = defaultdict(list)
    for line in lines:
        if line["op"] != "wgrad":
            found[line["precision"], line["shape"], line["op"]].append(line)
    by_precision: dict[str, list[Case]] = defaultdict(list)
    for (precision, _, _), of_case in found.items():
        by_precision[precision].append(Case(of_case))
    return by_precision


def milliseconds(of: Sequence[Case], slots: int, costs: Mapping[str, float]) -> float:
    """Of all cases with the tiles that such a table chooses."""
    return sum(case.count * case.ms[case.chosen(slots, costs)] for case in of)


def least(of: Sequence[Case]) -> float:
    """With the best tile of each."""
    return sum(case.count * min(case.ms.values()) for case in of)


def fit(of: Sequence[Case]) -> tuple[int, dict[str, float]]:
    """Slots and costs with the least time; of equals the first."""
    first, *others = TILES
    best, found = math.inf, (SMS, {tile.name: tile.cost for tile in TILES})
    for slots, ratios in product(SLOTS, product(RATIOS, repeat=len(others))):
        if list(ratios) != sorted(ratios):  # a smaller tile loads more for each product
            continue
        costs = {first.name: 1.0, **dict(zip((tile.name for tile in others), ratios))}
        spent = milliseconds(of, slots, costs)
        if spent < best:
            best, found = spent, (slots, costs)
    return found


def fitted(lines: Iterable[Line]) -> dict[str, Any]:
    """By precision, and for all: slots, costs, milliseconds with them, with today's table and with the best tiles."""
    by_precision = cases(lines)
    if not by_precision:
        return {}
    groups = {**by_precision, "all": [case for of in by_precision.values() for case in of]}
    now = {tile.name: tile.cost for tile in TILES}
    table = {}
    for name, of in groups.items():
        slots, costs = fit(of)
        table[name] = {
            "slots": slots, "costs": costs, "ms": milliseconds(of, slots, costs), "now ms": milliseconds(of, SMS, now),
            "least ms": least(of),
        }  # fmt: skip
    return table


def text(table: Mapping[str, Any]) -> str:
    """The lines that would stand in implicit_gemm.py."""
    lines = []
    for name, found in table.items():
        tiles = ", ".join(
            f"Tile({tile.m}, {tile.n}, {tile.threads}, {found['costs'][tile.name]:.2f})" for tile in TILES
        )
        lines.append(
            f"{name}: SMS = {found['slots']}; TILES = ({tiles})  # {found['ms']:.3g} ms, now {found['now ms']:.3g}, "
            f"best of each {found['least ms']:.3g}"
        )
    return "; ".join(lines)


if __name__ == "__main__":
    print(text(fitted(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))).replace("; all", "\nall"))
