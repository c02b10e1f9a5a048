"""Tables of layermem/backends/cuda that fit measured times: python -m tools.gpu.fit_tiles out/gpu [--table FILE]

It reads the tile_times.jsonl that the step `tiles` of tools/gpu_check.py has left in these folders, and needs no GPU.
Everything that is fitted chooses among candidates by a model of their cycles; what is fitted are the constants of that
model under which its choices take least time, over all shapes, as often as the nets have them:

    paces, L2_BYTES       by precision: a factor for the paces of each tile, and bytes of the L2 cache in a cycle
                          (implicit_gemm.cycles), by the tiles chosen for each product
    ADD_CYCLES, SLACK     for all precisions: by the splits chosen for weight gradients (implicit_gemm.split_of) and the
                          parts of inner products (inner_parts.parts_of)
    PAYS                  by precision and product: from which columns, depth and pixels on warpgroups compute it
                          (warpgroup.Least), where there are times of both engines

Of tables that take equal time, today's is kept, or the one nearer to it in the search.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from layermem.backends.cuda import implicit_gemm, inner_parts
from layermem.backends.cuda.implicit_gemm import (
    ADD_CYCLES,
    ALL_TILES,
    DGRAD,
    ENGINES,
    FP32_SHARE,
    FPROP,
    L2_BYTES,
    PACKED_BF16,
    SLACK,
    SMS,
    Engine,
    Split,
    cycles,
)
from layermem.ops import ConvProblem, Window
from layermem.utils.files import write_atomically
from tools.gpu.kept import calls
from tools.gpu.results import Row

Line = Mapping[str, Any]
TIMES = "tile_times.jsonl"
PACKED, WARPGROUPS = "bf16 on bf16", "warpgroups "  # a precision, and what a name of a tile begins with
L2 = tuple(SMS * each for each in (24, 16, 20, 28, 32, 48))  # bytes a cycle; today's first
FACTORS = (1.0, 0.7, 0.8, 0.9, 1.1, 1.2, 1.35, 1.5)  # today's first
ADDS = (ADD_CYCLES, 0, 1250, 2500, 3500, 7000, 10000, 14000, 20000, 40000)
SLACKS = (SLACK, 2, 4, 6, 12, 16, 24, 32, 64, 10**9)
OF_FP32 = ("fp32", "fp32x3")  # precisions whose milliseconds count once, others FP32_SHARE times, as in split_of()


class Case:
    """A product of one shape: milliseconds by tile, and what the choice depends on."""

    def __init__(self, lines: Sequence[Line]):
        first = lines[0]
        self.matrices, self.depth = (first["m"], first["n_columns"], first["repeat"]), first["depth"]
        self.least_shape = first["n_columns"], first.get("deep", first["depth"]), first.get("pixels", 1)
        self.count = first["count"]
        self.ms: dict[str, float] = {}
        for line in lines:
            self.ms[line["tile"]] = min(line["ms"], self.ms.get(line["tile"], math.inf))
        self.tiles = [tile for tile in ALL_TILES if tile.name in self.ms]
        own = [ms for name, ms in self.ms.items() if name.startswith(WARPGROUPS)]
        self.by_warpgroups = min(own, default=math.inf)
        self.by_others = min((ms for ms in self.ms.values() if ms not in own), default=math.inf)

    @property
    def least(self) -> float:
        """Of the tiles among which cycles() chooses."""
        return min(self.ms[tile.name] for tile in self.tiles)

    def chosen(self, engine: Engine, l2_bytes: int) -> str:
        """As tile_for() would, among the tiles that were tried."""
        return min(self.tiles, key=lambda tile: cycles(engine, tile, self.matrices, self.depth, l2_bytes)).name


def cases(lines: Iterable[Line]) -> dict[str, dict[str, list[Case]]]:
    """By precision and op; of an inner product without parts, of a weight gradient in the split that has most tiles."""
    found: dict[str, dict[str, list[Case]]] = defaultdict(lambda: defaultdict(list))
    for (precision, _, op), of_shape in _grouped(lines, "precision", "shape", "op").items():
        by_split = _grouped(
            [{"split": [], **line} for line in of_shape if op == "wgrad" or line["parts"] == 1], "split"
        )
        if by_split:
            found[precision][op].append(Case(max(by_split.values(), key=len)))
    return found


def _grouped(lines: Iterable[Line], *keys: str) -> dict[tuple[Any, ...], list[Line]]:
    found: dict[tuple[Any, ...], list[Line]] = defaultdict(list)
    for line in lines:
        found[tuple(str(line[key]) for key in keys)].append(line)
    return found


def engine_of(precision: str) -> Engine:
    """That of tiles which every GPU has."""
    return PACKED_BF16 if precision == PACKED else ENGINES[precision]


# -- paces of tiles ----------------------------------------------------------------------------------------------------


def milliseconds(of: Sequence[Case], engine: Engine, l2_bytes: int) -> float:
    """Of all cases with the tiles that such a table chooses."""
    return sum(case.count * case.ms[case.chosen(engine, l2_bytes)] for case in of)


def least(of: Sequence[Case]) -> float:
    """With the best tile of each."""
    return sum(case.count * case.least for case in of)


class Search:
    """Factors of the paces of all tiles that an engine has, for one rate of the L2 cache."""

    def __init__(self, of: Sequence[Case], engine: Engine, l2_bytes: int):
        self.tiles = [tile for tile in ALL_TILES if tile.name in engine.paces]
        self.cycles = np.full((len(of), len(self.tiles), len(FACTORS)), np.inf)
        self.ms = np.full((len(of), len(self.tiles)), np.inf)
        for f, factor in enumerate(FACTORS):
            scaled = engine._replace(paces=scaled_paces(engine, dict.fromkeys(engine.paces, factor)))
            for c, case in enumerate(of):
                for tile in case.tiles:
                    t = self.tiles.index(tile)
                    self.cycles[c, t, f] = cycles(scaled, tile, case.matrices, case.depth, l2_bytes)
                    self.ms[c, t] = case.count * case.ms[tile.name]

    def spent(self, factors: Sequence[int]) -> float:
        """Milliseconds; `factors` are indices of FACTORS."""
        columns = np.arange(len(self.tiles))
        best = self.cycles[:, columns, list(factors)].argmin(axis=1)
        return float(self.ms[np.arange(len(best)), best].sum())

    def best(self) -> tuple[float, tuple[int, ...]]:
        """From today's factors, and from those that measured times have beside modelled ones."""
        starts = [(0,) * len(self.tiles), self._measured()]
        return min((self._descended(start) for start in starts), key=lambda each: each[0])

    def _measured(self) -> tuple[int, ...]:
        with np.errstate(invalid="ignore"):
            ratios = np.nanmedian(np.where(np.isfinite(self.ms), self.ms / self.cycles[:, :, 0], np.nan), axis=1)
            shares = np.where(np.isfinite(self.ms), self.ms / self.cycles[:, :, 0] / ratios[:, None], np.nan)
        timed = np.isfinite(shares).any(axis=0)
        wanted = [float(np.nanmedian(shares[:, t])) if timed[t] else 1.0 for t in range(len(self.tiles))]
        return tuple(min(range(len(FACTORS)), key=lambda f: abs(math.log(FACTORS[f] / each))) for each in wanted)

    def _descended(self, factors: tuple[int, ...]) -> tuple[float, tuple[int, ...]]:
        """With other factors of one tile or two, as long as that takes less time."""
        spent, moved = self.spent(factors), True
        while moved:
            moved = False
            for size in (1, 2):
                for tiles in combinations(range(len(self.tiles)), size):
                    for values in product(range(len(FACTORS)), repeat=size):
                        changed = list(factors)
                        for tile, value in zip(tiles, values):
                            changed[tile] = value
                        other = self.spent(changed)
                        if other < spent * (1 - 1e-9):
                            spent, factors, moved = other, tuple(changed), True
                if moved:
                    break
        return spent, factors


def scaled_paces(engine: Engine, factors: Mapping[str, float]) -> dict[str, list[int]]:
    """By tile; those without a factor stay."""
    return {name: [round(factors.get(name, 1.0) * pace) for pace in paces] for name, paces in engine.paces.items()}


def fit(of: Sequence[Case], engine: Engine) -> tuple[int, dict[str, list[int]]]:
    """Bytes of the L2 cache and paces with the least time."""
    found = []
    for l2_bytes in L2:
        search = Search(of, engine, l2_bytes)
        spent, factors = search.best()
        by_name = {tile.name: FACTORS[factor] for tile, factor in zip(search.tiles, factors)}
        found.append((spent, l2_bytes, scaled_paces(engine, by_name)))
    _, l2_bytes, paces = min(found, key=lambda each: each[0])
    return l2_bytes, paces


def fitted(lines: Iterable[Line]) -> dict[str, Any]:
    """By precision: bytes, paces, milliseconds with them, with today's table and with the best tiles."""
    table = {}
    for precision, by_op in cases(lines).items():
        of = [case for each in by_op.values() for case in each if len(case.tiles) > 1]
        if not of:
            continue
        engine = engine_of(precision)
        l2_bytes, paces = fit(of, engine)
        table[precision] = {
            "L2_BYTES": l2_bytes,
            "paces": paces,
            "ms": milliseconds(of, engine._replace(paces=paces), l2_bytes),
            "now ms": milliseconds(of, engine, L2_BYTES),
            "least ms": least(of),
        }
    return table


# -- splits and parts --------------------------------------------------------------------------------------------------


class Choice(NamedTuple):
    """Of one shape, in the order in which the first of equals is chosen: cycles of each candidate without the launch
    that adds parts, whether it has one, and milliseconds."""

    weight: float
    cycles: Sequence[int]
    adds: Sequence[bool]
    ms: Sequence[float]

    def chosen_ms(self, add_cycles: int, slack: int, launches: int) -> float:
        spent = [each + add_cycles * launches * adds for each, adds in zip(self.cycles, self.adds)]
        most = min(spent) + min(spent) // slack
        return next(ms for ms, each in zip(self.ms, spent) if each <= most)


def choices(lines: Iterable[Line]) -> list[tuple[Choice, int]]:
    """With the launches that their cycles count: those of weight gradients are of several precisions at once."""
    found = []
    for (precision, _, op), of_shape in _grouped(lines, "precision", "shape", "op").items():
        weight = of_shape[0]["count"] * (1 if precision in OF_FP32 else FP32_SHARE)
        ms: dict[Any, float] = {}
        for line in of_shape:
            of = tuple(line.get("split", ())) if op == "wgrad" else line["parts"]
            ms[of] = min(line["ms"], ms.get(of, math.inf))
        if len(ms) < 2:
            continue
        if op == "wgrad":
            problem, splits = problem_of(of_shape[0]), sorted((Split(*of) for of in ms), key=_turn)
            with patch.object(implicit_gemm, "ADD_CYCLES", 0):
                spent = [implicit_gemm._split_cycles(problem, split) for split in splits]
            choice = Choice(weight, spent, [each.parts > 1 for each in splits], [ms[each] for each in splits])
            found.append((choice, FP32_SHARE + 1))
        else:
            line, counts = of_shape[0], sorted(ms)
            with patch.object(inner_parts, "ADD_CYCLES", 0):
                name, shape = {"fprop": FPROP, "dgrad": DGRAD}[op], (line["m"], line["n_columns"], line["depth"])
                spent = [inner_parts._parts_cycles(name, *shape, count) for count in counts]
            found.append((Choice(weight, spent, [each > 1 for each in counts], [ms[each] for each in counts]), 1))
    return found


def _turn(split: Split) -> tuple[bool, int]:
    """As split_of() tries them."""
    return split.pieces > 1, split.parts


def problem_of(line: Line) -> ConvProblem:
    """As tools/gpu/tiles.py describes it."""
    axes = [
        Window(line[side], *(line[name][axis] for name in ("kernel", "stride", "pad", "dilation")))
        for axis, side in enumerate(("h", "w"))
    ]
    return ConvProblem(line["n"], line["c"], line["k"], *axes, line["groups"])


def fitted_splits(lines: Iterable[Line]) -> Row:
    """ADD_CYCLES and SLACK, and weighted milliseconds with them, with today's, and with the best candidates."""
    of = choices(lines)
    if not of:
        return {}

    def spent(add_cycles: int, slack: int) -> float:
        return sum(choice.weight * choice.chosen_ms(add_cycles, slack, launches) for choice, launches in of)

    add_cycles, slack = min(product(ADDS, SLACKS), key=lambda pair: spent(*pair))
    best = sum(choice.weight * min(choice.ms) for choice, _ in of)
    return {
        "ADD_CYCLES": add_cycles,
        "SLACK": slack,
        "ms": spent(add_cycles, slack),
        "now ms": spent(ADD_CYCLES, SLACK),
        "least ms": best,
    }


# -- warpgroups --------------------------------------------------------------------------------------------------------


def paying(lines: Iterable[Line]) -> dict[str, Row]:
    """By precision and op: from which columns, depth and pixels on warpgroups take least time, with the best tiles of
    both engines; milliseconds so, without them, and with the faster engine for each shape."""
    both = {
        f"{precision} {op}": [case for case in of if max(case.by_warpgroups, case.by_others) < math.inf]
        for precision, by_op in cases(lines).items()
        for op, of in by_op.items()
    }
    return {name: _bounds(of) for name, of in both.items() if of}


def _bounds(of: Sequence[Case]) -> Row:
    weights = np.array([case.count for case in of])
    own, others = (np.array([getattr(case, name) for case in of]) for name in ("by_warpgroups", "by_others"))
    shapes = np.array([case.least_shape for case in of])

    def spent(bounds: tuple[float, ...]) -> float:
        pays = (shapes >= np.array(bounds)).all(axis=1)
        return float((weights * np.where(pays, own, others)).sum())

    never = (math.inf,) * 3
    best = min(product(*([*sorted(set(column)), math.inf] for column in shapes.T.tolist())), key=spent)
    found = {
        "ms": spent(best),
        "without ms": spent(never),
        "least ms": float((weights * np.minimum(own, others)).sum()),
    }
    return found if math.inf in best else dict(zip(("columns", "depth", "pixels"), best)) | found


# -- the command -------------------------------------------------------------------------------------------------------


def read_lines(paths: Sequence[Path]) -> list[Line]:
    """Of files of times, and of all calls in folders; of a candidate that was timed more than once, the last."""
    texts = [path.read_text(encoding="utf-8") for path in paths if path.suffix == ".jsonl"]
    earlier = [call.detail(TIMES) for call in calls(paths)]
    texts += [content.decode() for content in reversed(earlier) if content is not None]
    lines = [json.loads(line) for text in texts for line in text.splitlines() if line.endswith("}")]
    keys = ("precision", "shape", "op", "function", "parts", "split")
    return list({tuple(str(line[key]) for key in keys): line for line in lines}.values())


def text(table: Mapping[str, Any]) -> str:
    """The lines that would stand in implicit_gemm.py and warpgroup.py, with their milliseconds."""
    lines = []
    for name, found in table.items():
        constants = "; ".join(f"{key} = {value}" for key, value in found.items() if not key.endswith("ms"))
        now = next((found[key] for key in ("now ms", "without ms") if key in found), math.nan)
        lines.append(
            f"{name}: {constants or 'never'}  # {found['ms']:.4g} ms, now {now:.4g}, best of each "
            f"{found['least ms']:.4g}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "paths", type=Path, nargs="+", help="folders of results of tools/gpu_check.py, or tile_times.jsonl"
    )
    parser.add_argument("--table", type=Path, metavar="FILE", help="where all that is fitted goes, as JSON")
    options = parser.parse_args()
    lines = read_lines(options.paths)
    if not lines:
        raise SystemExit(f"there is no {TIMES} of the step `tiles` in {' '.join(map(str, options.paths))}")
    splits = fitted_splits(lines)
    table = {"tiles": fitted(lines), "splits": {"all": splits} if splits else {}, "PAYS": paying(lines)}
    print(f"{len(lines)} candidates")
    print("\n".join(text(each) for each in table.values() if each))
    if options.table:
        write_atomically(options.table, json.dumps(table, indent=1).encode())


if __name__ == "__main__":
    main()
