"""The tables of layermem/backends/cuda/implicit_gemm.py that fit measured times: python -m tools.gpu.fit_tiles
tile_times.json

implicit_gemm.tile_for chooses the tile of least cycles by its model: paces of the stages of each tile, and bytes that
come from the L2 cache in a cycle.  What is fitted, for each precision, is a factor of the paces of each tile that all
products have, but the first, and the bytes: those under which the tiles that it chooses for fprop and dgrad take least
time, over all shapes, as often as the nets have them.

warpgroup.PAYS says from which columns and depth on warpgroups compute a product: these are fitted as well, where there
are times of both engines.
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
    PACKED_BF16,
    PRODUCTS,
    SMS,
    Engine,
    Tile,
    cycles,
)
from tools.gpu.results import Row

Line = Mapping[str, Any]
PACKED, WARPGROUPS = "bf16 on bf16", "warpgroups "  # a precision, and what a name of a tile begins with
L2 = tuple(SMS * each for each in (24, 16, 20, 28, 32, 48))  # bytes a cycle
FACTORS = (1.0, 0.7, 0.8, 0.9, 1.1, 1.2, 1.35, 1.5)


class Case:
    """An op of one shape: milliseconds by tile, and what the choice depends on."""

    def __init__(self, lines: Sequence[Line]):
        first = lines[0]
        self.matrices, self.depth = (first["m"], first["n_columns"], first["repeat"]), first["depth"]
        self.count = first["count"]
        self.ms: dict[str, float] = {}  # the least over the parts of a weight gradient
        for line in lines:
            self.ms[line["tile"]] = min(line["ms"], self.ms.get(line["tile"], math.inf))
        self.tiles = [tile for tile in ALL_TILES if tile.name in self.ms]
        self.least = min(self.ms[tile.name] for tile in self.tiles)
        self.by_warpgroups = min((ms for name, ms in self.ms.items() if name.startswith(WARPGROUPS)), default=math.inf)

    def chosen(self, engine: Engine, l2_bytes: int) -> str:
        """As tile_for() would, among the tiles that were tried."""
        return min(self.tiles, key=lambda tile: cycles(engine, tile, self.matrices, self.depth, l2_bytes)).name


def of_shapes(lines: Iterable[Line]) -> dict[tuple[str, str, str], list[Line]]:
    """By precision, shape and op."""
    found: dict[tuple[str, str, str], list[Line]] = defaultdict(list)
    for line in lines:
        found[line["precision"], line["shape"], line["op"]].append(line)
    return found


def cases(lines: Iterable[Line]) -> dict[str, list[Case]]:
    """Those of fprop and dgrad by precision."""
    by_precision: dict[str, list[Case]] = defaultdict(list)
    for (precision, _, _), of_case in of_shapes(line for line in lines if line["op"] != "wgrad").items():
        by_precision[precision].append(Case(of_case))
    return by_precision


def milliseconds(of: Sequence[Case], engine: Engine, l2_bytes: int) -> float:
    """Of all cases with the tiles that such a table chooses."""
    return sum(case.count * case.ms[case.chosen(engine, l2_bytes)] for case in of)


def least(of: Sequence[Case]) -> float:
    """With the best tile of each."""
    return sum(case.count * case.least for case in of)


def engine_of(precision: str) -> Engine:
    """That of tiles which every GPU has."""
    return PACKED_BF16 if precision == PACKED else ENGINES[precision]


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
        engine = engine_of(precision)
        l2_bytes, paces = fit(of, engine)
        table[precision] = {
            "l2_bytes": l2_bytes, "paces": paces, "ms": milliseconds(of, engine._replace(paces=paces), l2_bytes),
            "now ms": milliseconds(of, engine, L2_BYTES), "least ms": least(of),
        }  # fmt: skip
    return table


def paying(lines: Iterable[Line]) -> dict[str, Row]:
    """By precision and op: from which columns and depth on warpgroups take least time, with the best tiles of both
    engines; milliseconds so, without them, and with the faster engine for each shape."""
    by_op: dict[str, list[Case]] = defaultdict(list)
    for (precision, _, op), of_case in of_shapes(lines).items():
        case = Case(of_case)
        if case.by_warpgroups < math.inf:
            by_op[f"{precision} {op}"].append(case)
    return {name: _bounds(of) for name, of in by_op.items()}


def _bounds(of: Sequence[Case]) -> Row:
    def spent(columns: float, depth: float) -> float:
        pays = (case.matrices[1] >= columns and case.depth >= depth for case in of)
        return sum(case.count * (case.by_warpgroups if own else case.least) for case, own in zip(of, pays, strict=True))

    columns, depths = ([*sorted(each), math.inf] for each in ({case.matrices[1] for case in of}, {c.depth for c in of}))
    best = min(product(columns, depths), key=lambda bounds: spent(*bounds))
    times = {"ms": spent(*best), "without ms": spent(math.inf, math.inf)}
    times["least ms"] = sum(case.count * min(case.least, case.by_warpgroups) for case in of)
    return times if math.inf in best else {"columns": best[0], "depth": best[1], **times}


def text(table: Mapping[str, Any]) -> str:
    """The lines that would stand in implicit_gemm.py."""
    return "; ".join(
        f"{name}: L2_BYTES = {found['l2_bytes']}; {found['paces']}  # {found['ms']:.3g} ms, now {found['now ms']:.3g}, "
        f"best of each {found['least ms']:.3g}"
        for name, found in table.items()
    )


if __name__ == "__main__":
    print(text(fitted(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))).replace("; ", "\n"))
