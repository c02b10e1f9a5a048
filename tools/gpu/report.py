"""Formats results.json as tables, and as a list of failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tools.gpu.results import Row

TITLES = {
    "preparation": "What the steps need",
    "environment": "Machine",
    "smoke": "Every kernel once, as the driver loads it",
    "correctness": "Every kernel against double precision, twice",
    "training": "Small nets under every strategy",
    "ceilings": "Ceilings",
    "tiles": "Tiles and splits",
    "ops": "Ops of whole nets",
    "layers": "Layers beside cuDNN",
    "nets": "Whole nets beside PyTorch",
    "timeline": "Streams of one step",
    "ncu": "Nsight Compute",
    "sanitizer": "compute-sanitizer",
}
MAX_ROWS = 120  # rows of a table
MUST_PASS = ("smoke", "correctness", "training", "sanitizer")


def failures(found: Mapping[str, Any]) -> list[str]:
    """A line for each step that did not end well and for each row that reports a failure."""
    lines = []
    for name, step in found.items():
        if not step["ended"].startswith("done"):
            lines.append(f"{name}: {step['ended']}")
        for row in step["rows"]:
            if row.get("passed") is False or (row.get("late") and name in MUST_PASS):
                lines.append(f"{name}: {' '.join(str(v) for k, v in row.items() if k not in ('passed', 'late'))}")
        if name in MUST_PASS and not step["rows"]:
            lines.append(f"{name}: says nothing")
    return lines


def markdown(found: Mapping[str, Any]) -> str:
    lines = ["# What a GPU says", ""]
    for name, step in found.items():
        lines += [f"## {TITLES.get(name, name)}", "", f"{step['seconds']:.0f} s, {step['ended']}.", ""]
        rows = step["rows"]
        if name == "smoke":
            lines += table([row for row in rows if "registers" in row and row.get("passed") is True])
        if name in MUST_PASS:
            passed = sum(row.get("passed") is True for row in rows)
            lines += [f"{passed} of {len(rows)} passed{worst(rows)}.", ""]
            rows = [row for row in rows if row.get("passed") is not True]
        lines += table(rows[:MAX_ROWS])
        if len(rows) > MAX_ROWS:
            lines += [f"{len(rows) - MAX_ROWS} more in results.json.", ""]
        if "log" in step:
            lines += ["```", step["log"], "```", ""]
    return "\n".join(lines) + "\n"


def worst(rows: Sequence[Row]) -> str:
    """The largest error in each precision."""
    errors: dict[str, float] = {}
    for row in rows:
        if "error" in row:
            errors[row["precision"]] = max(errors.get(row["precision"], 0.0), row["error"])
    said = ", ".join(f"{precision} {error:.1e}" for precision, error in errors.items())
    return f"; largest relative errors: {said}" if said else ""


def table(rows: Sequence[Row]) -> list[str]:
    """Markdown with a column for every key, in the order of first occurrence."""
    if not rows:
        return []
    keys = list(dict.fromkeys(key for row in rows for key in row))
    lines = ["| " + " | ".join(keys) + " |", "|" + " --- |" * len(keys)]
    lines += ["| " + " | ".join(cell(row.get(key, "")) for key in keys) + " |" for row in rows]
    return [*lines, ""]


def cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value).replace("|", "\\|")
