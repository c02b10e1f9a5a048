"""Tables of documents whose numbers are those of docs/benchmarks/sass.tsv: main loops in sass.md and cuda.md.

A line of such a table keeps its first cell, which says what it is of; tools/sass_model.py --documents writes the
others, and a test compares them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from layermem.backends.cuda.implicit_gemm import ROW_BYTES
from tools.sass.engine import MODELLED, OPERATIONS
from tools.sass.gpus import GPUS
from tools.sass.net import WARPGROUPS
from tools.sass.table import Saved

BENCHMARKS = Path(__file__).resolve().parents[2] / "docs/benchmarks"
SAVED = BENCHMARKS / "sass.tsv"
DOCUMENTS = (BENCHMARKS / "sass.md", BENCHMARKS / "cuda.md")
PACKED = "bf16 on bf16"

Rows = Mapping[tuple[str, str], Saved]
Cells = Sequence[str]
Writer = Callable[
    [Rows, Cells], "list[str] | None"
]  # all cells of a line, of those that it has now; None: not of a kernel


def with_tables(text: str, rows: Rows) -> str:
    """`text`, a document, with the numbers of `rows` in its tables."""
    writer: Writer | None = None
    lines = []
    for line in text.splitlines(keepends=True):
        if line.startswith("#"):
            writer = WRITERS.get(line.strip())
        cells = [each.strip() for each in line.strip().strip("|").split("|")] if line.startswith("|") else []
        new = writer(rows, cells) if writer and cells else None
        lines.append(line if new is None else f"| {' | '.join(new)} |\n")
    return "".join(lines)


def _of_tile(rows: Rows, precision: str, tile: str, vector: int) -> list[str]:
    """Issued for each product, and TFLOP/s, of the three products; blocks on a multiprocessor."""
    found = [rows[precision, f"conv_{operation}_{tile}_v{vector}"] for operation in OPERATIONS]
    digits = 2 if precision == "fp32" else 1
    issued = [f"{float(row['per_product']):.{digits}f}" for row in found]
    return [*issued, *(f"{float(row['tflops']):.0f}" for row in found), found[0]["blocks"]]


def _tile(rows: Rows, cells: Cells) -> list[str] | None:
    named = re.fullmatch(r"(\w+) (\d+x\d+)", cells[0])
    return [cells[0], *_of_tile(rows, named[1], named[2], 4)] if named else None


def _packed_tile(rows: Rows, cells: Cells) -> list[str] | None:
    return [cells[0], *_of_tile(rows, PACKED, cells[0], 8)] if re.fullmatch(r"\d+x\d+", cells[0]) else None


def _tall_or_wide(rows: Rows, cells: Cells) -> list[str] | None:
    named = re.fullmatch(r"(\w+) `(\w+)`", cells[0])
    if not named:
        return None
    precision = PACKED if named[1] == "packed" else named[1]
    row = rows[precision, named[2]]
    numbers = [f"{float(row['per_product']):.1f}", row["registers"], row["blocks"], row["cycles"]]
    return [cells[0], *numbers, *_rates(row, MODELLED[precision].depth)]


def _by_warpgroups(rows: Rows, cells: Cells) -> list[str] | None:
    """The file has the sum of what both warps issue."""
    named = re.fullmatch(r"(?:(\w+) )?`(\w+)`", cells[0])
    if not named:
        return None
    precision = named[1] or PACKED
    row = rows[precision + WARPGROUPS, named[2]]
    is_sum = int(cells[1]) + int(cells[2]) == float(row["instructions"])
    issued = cells[1:3] if is_sum else [f"{row['instructions']} in all", "see --warpgroups"]
    numbers = [row["registers"], row["blocks"], row["cycles"]]
    return [cells[0], *issued, *numbers, *_rates(row, MODELLED[precision].depth)]


def _rates(row: Saved, depth: int) -> list[str]:
    """TFLOP/s of the loop, and what L2 lets through."""
    named = re.search(r"_(\d+)x(\d+)_", row["kernel"])
    assert named is not None
    m, n = int(named[1]), int(named[2])
    bound = 2 * m * n * depth / ((m + n) * ROW_BYTES) * GPUS["90"].l2 / 1e12
    return [f"{float(row['tflops']):.0f}", f"{bound:.0f}"]


def _before_and_now(rows: Rows, cells: Cells) -> list[str] | None:
    """Of 128 x 128."""
    if (cells[0], "conv_fprop_128x128_v4") not in rows:
        return None
    _, _, _, *rates, _ = _of_tile(rows, cells[0], "128x128", 4)
    return [cells[0], *(each for before, now in zip(cells[1::2], rates, strict=True) for each in (before, now))]


WRITERS: Mapping[str, Writer] = {  # by heading
    "### After": _tile,
    "### Packed tiles": _packed_tile,
    "### Tall and wide tiles": _tall_or_wide,
    "## Warpgroups": _by_warpgroups,
    "### Packed operands": _by_warpgroups,
    "### Main loops": _before_and_now,
}
