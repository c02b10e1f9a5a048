"""The training of a page: the curves of a log, and what is known of its run.

    source     the name of the log
    title      of the net; status: running, done, stopped, diverged or failed; message: the error, or null
    iteration, max_iter, seconds   where the run is
    facts      [label, text]
    charts     title, and curves: name, iterations x, values y (null: NaN or infinite)
    snapshots  iterations; notes: texts of the log

Curves of more than POINTS values keep the least and the largest of each of their intervals.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from layermem.report.read_log import Curve, curves, last_training
from layermem.report.records import Record
from layermem.utils.units import format_bytes, format_seconds

POINTS = 2000  # values of a curve
NOTES = 20  # the last ones
RUNNING = "running"
CHARTS = "Loss", "Outputs", "Learning rate", "Seconds per iteration"


def training_page(path: str, records: Sequence[Record]) -> dict[str, object]:
    """The section `training` of a page: the last training of the log `path`."""
    last = last_training(records)
    start = next((record for record in reversed(last) if record["event"] == "start"), {})
    end = last[-1] if last and last[-1]["event"] == "end" else {}
    charts: dict[str, list[dict[str, object]]] = {title: [] for title in CHARTS}
    for curve in curves(last):
        charts[_chart_of(curve, start)].append(_columns(_name(curve), curve.iterations, curve.values))
    charts[CHARTS[-1]] += _speed(last)
    return {
        "source": os.path.basename(path),
        "title": str(start.get("net", "")),
        "status": end.get("status", RUNNING),
        "message": end.get("message"),
        "iteration": next((r["iteration"] for r in reversed(last) if isinstance(r.get("iteration"), int)), None),
        "max_iter": start.get("max_iter"),
        "seconds": next((r["seconds"] for r in reversed(last) if "seconds" in r), None),
        "facts": list(_facts(start, end)),
        "charts": [{"title": title, "curves": each} for title, each in charts.items() if each],
        "snapshots": sorted({r["iteration"] for r in last if r["event"] == "snapshot"}),  # type: ignore[type-var]
        "notes": [str(record.get("text")) for record in last if record["event"] == "note"][-NOTES:],
    }


def _chart_of(curve: Curve, start: Record) -> str:
    """Losses share a chart with the outputs that are part of them."""
    if curve.kind == "learning_rate":
        return "Learning rate"
    weights = start.get("loss_weights")
    of_net = weights.get(curve.net) if isinstance(weights, dict) else None
    is_loss = isinstance(of_net, dict) and bool(of_net.get(curve.name.partition("[")[0]))
    return "Loss" if curve.kind != "output" or is_loss else "Outputs"


def _name(curve: Curve) -> str:
    return (
        curve.name
        if curve.kind == "learning_rate"
        else f"{curve.net} {curve.name.replace('average_loss', 'mean loss')}"
    )


def _columns(name: str, x: Sequence[int], y: Sequence[float | None]) -> dict[str, object]:
    kept = range(len(x)) if len(x) <= POINTS else _extremes(y)
    return {"name": name, "x": [x[i] for i in kept], "y": [y[i] for i in kept]}


def _extremes(values: Sequence[float | None]) -> list[int]:
    """Indices of the first and the last value, and of the least and the largest of each interval."""
    count = POINTS // 2 - 1
    kept = {0, len(values) - 1}
    for step in range(count):
        inside = range(step * len(values) // count, (step + 1) * len(values) // count)
        known = [(value, i) for i in inside if (value := values[i]) is not None]
        kept |= {min(known)[1], max(known)[1]} if known else {inside[0]}
    return sorted(kept)


def _speed(records: Iterable[Record]) -> Iterator[dict[str, object]]:
    """Seconds per iteration between one recorded iteration and the next of the same run."""
    x: list[int] = []
    y: list[float | None] = []
    timed = [record for record in records if record["event"] in ("start", "train")]
    for before, after in pairwise(timed):
        if before["event"] == after["event"] == "train":
            first, second, begin, stop = before["iteration"], after["iteration"], before["seconds"], after["seconds"]
            assert isinstance(first, int) and isinstance(second, int)
            assert isinstance(begin, int | float) and isinstance(stop, int | float)
            if second > first:
                x.append(second)
                y.append((stop - begin) / (second - first))
    if x:
        yield _columns("train", x, y)


def _facts(start: Record, end: Record) -> Iterator[list[str]]:
    for label, name in (("device", "device"), ("strategy", "strategy"), ("solver", "solver_file"), ("began", "time")):
        if start.get(name):
            yield [label, str(start[name])]
    for label, record, name in (
        ("budget", start, "budget_bytes"),
        ("predicted peak", start, "predicted_peak_bytes"),
        ("measured peak", end, "measured_peak_bytes"),
        ("max RSS", end, "max_resident_bytes"),
    ):
        nbytes = record.get(name)
        if isinstance(nbytes, int):
            yield [label, f"{format_bytes(nbytes)} ({nbytes:,} bytes)"]
    seconds = start.get("predicted_seconds")
    if isinstance(seconds, int | float):
        yield ["predicted", f"{format_seconds(seconds)} per step"]
