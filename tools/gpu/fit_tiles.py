"""The tables of layermem/backends/cuda/implicit_gemm.py that fit measured times: python -m tools.gpu.fit_tiles
tile_times.json

implicit_gemm.tile_for chooses the tile of least cycles by its model: paces of the stages of each tile, and bytes that
come from the L2 cache in a cycle.  What is fitted, for each precision, is a factor of the paces of each tile that all
products have, but the first, and the bytes: those under which the tiles that it chooses for fprop and dgrad take least
time, over all shapes, as often as the nets have them.
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

from layermem.backends.cuda.implicit_gemm import (
    ALL_TILES,
    ENGINES,
    FPROP_POOL,
    L2_BYTES,
    PRODUCTS,
    SMS,
    Engine,
    Tile,
    cycles,
)

Line = Mapping[str, Any]
L2 = tuple(SMS * each for each in (24, 16, 20, 28, 32, 48))  # bytes a cycle
FACTORS = (1.0, 0.7, 0.8, 0.9, 1.1, 1.2, 1.35, 1.5)


class Case:
    """An op of one shape: milliseconds by tile, and what the choice depends on."""

    def __init__(self, lines: Sequence[Line]):
        first = lines[0]
        self.matrices, self.depth = (first["m"], first["n_columns"], first["repeat"]), first["depth"]
        self.count = first["count"]
        self.ms = {line["tile"]: line["ms"] for line in lines}
        self.tiles = [tile for tile in ALL_TILES if tile.name in self.ms]

    def chosen(self, engine: Engine, l2_bytes: int) -> str:
        """As tile_for() would, among the tiles that were tried."""
        return min(self.tiles, key=lambda tile: cycles(engine, tile, self.matrices, self.depth, l2_bytes)).name


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


def milliseconds(of: Sequence[Case], engine: Engine, l2_bytes: int) -> float:
    """Of all cases with the tiles that such a table chooses."""
    return sum(case.count * case.ms[case.chosen(engine, l2_bytes)] for case in of)


def least(of: Sequence[Case]) -> float:
    """With the best tile of each."""
    return sum(case.count * min(case.ms.values()) for case in of)


def fit(of: Sequence[Case], engine: Engine) -> tuple[int, dict[str, list[int]]]:
    """Bytes and paces with the least time; of equals the first, which are today's."""
    best, found = math.inf, (L2_BYTES, engine)
    for l2_bytes, factors in product(L2, product(FACTORS, repeat=len(fitted_tiles(engine)) - 1)):
        scaled = engine._replace(paces=scaled_paces(engine, (1.0, *factors)))
        spent = milliseconds(of, scaled, l2_bytes)
        if spent < best:
            best, found = spent, (l2_bytes, scaled)
    return found[0], {name: list(paces) for name, paces in found[1].paces.items()}


def fitted_tiles(engine: Engine) -> list[Tile]:
    return [tile for tile in engine.tiles if {*tile.products} - {FPROP_POOL} == {*PRODUCTS}]


def scaled_paces(engine: Engine, factors: Sequence[float]) -> dict[str, Sequence[int]]:
    scaled = {
        tile.name: [round(factor * pace) for pace in engine.paces[tile.name]]
        for tile, factor in zip(fitted_tiles(engine), factors)
    }
    return {**engine.paces, **scaled}


def fitted(lines: Iterable[Line]) -> dict[str, Any]:
    """By precision: bytes, paces, milliseconds with them, with today's table and with the best tiles."""
    table = {}
    for precision, of in cases(lines).items():
        engine = ENGINES[precision]
        l2_bytes, paces = fit(of, engine)
        table[precision] = {
            "l2_bytes": l2_bytes, "paces": paces, "ms": milliseconds(of, engine._replace(paces=paces), l2_bytes),
            "now ms": milliseconds(of, engine, L2_BYTES), "least ms": least(of),
        }  # fmt: skip
    return table


def text(table: Mapping[str, Any]) -> str:
    """The lines that would stand in implicit_gemm.py."""
    return "; ".join(
        f"{name}: L2_BYTES = {found['l2_bytes']}; {found['paces']}  # {found['ms']:.3g} ms, now {found['now ms']:.3g}, "
        f"best of each {found['least ms']:.3g}"
        for name, found in table.items()
    )


if __name__ == "__main__":
    print(text(fitted(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))).replace("; ", "\n"))
