"""A planned step in a few lines, and as values for JSON.

LeNet x64   device reference   strategy auto   budget 5.00 MiB
peak       4.91 MiB   5,148,160 bytes, 33.5 % of the baseline
baseline   14.6 MiB   strategy caffe; BVLC Caffe itself would take 14.5 MiB
...
"""

from __future__ import annotations

import sys
from typing import Any

from layermem.report.plan_report import PlanReport, kind_of
from layermem.utils.units import format_bytes, format_change, format_seconds

SHOWN = 5  # residencies of the fullest moment
MANY = 20  # of them in JSON
KIND_NAMES = {
    "parameter": "parameters", "history": "histories", "gradient": "parameter gradients", "data": "activations",
    "diff": "gradients", "stash": "stashes", "workspace": "workspace",
}  # fmt: skip


def summary(found: PlanReport) -> str:
    """The lines that `plan` prints and `train` begins with."""
    budget = f"   budget {format_bytes(found.budget)}" if found.budget is not None else ""
    lines = [f"{found.job.title}   device {found.device}   strategy {found.strategy}{budget}"]
    lines += [f"{name:<11}{text}" for name, text in _facts(found)]
    lines += [f"warning    {warning}" for graph in found.job.graphs for warning in graph.warnings]
    return "\n".join(lines) + "\n"


def _facts(found: PlanReport) -> list[tuple[str, str]]:
    job, share = found.job, percent(found.peak_bytes, found.job.baseline_bytes)
    facts = [
        ("peak", f"{format_bytes(found.peak_bytes):<11}{found.peak_bytes:,} bytes, {share} of the baseline"),
        ("baseline", f"{format_bytes(job.baseline_bytes):<11}strategy caffe; BVLC Caffe itself would take "
                     f"{format_bytes(job.bvlc_bytes)}"),
    ]  # fmt: skip
    if found.fragmentation_bytes:
        facts.append(
            (
                "gap",
                f"{format_bytes(found.fragmentation_bytes):<11}that placement wastes; the rest is in use at one moment",
            )
        )
    if found.program.host_bytes:
        facts.append(("host", f"{format_bytes(found.program.host_bytes):<11}{_copies(found)}"))
    facts.append(("time", f"{format_seconds(found.seconds):<11}{_time(found)}"))
    facts.append(("bounds", _bounds(found)))
    facts += _fullest(found)
    return facts


def _copies(found: PlanReport) -> str:
    return (
        f"{format_bytes(found.offloaded_bytes)} go there in a step"
        if found.offloaded_bytes
        else "holds what has its home there"
    )


def _time(found: PlanReport) -> str:
    again = f"; {found.recomputed_ops} ops run again" if found.recomputed_ops else ""
    return (
        f"predicted for a step, {format_change(found.overhead)} against the baseline's "
        f"{format_seconds(found.job.baseline_seconds)}{again}"
    )


def _bounds(found: PlanReport) -> str:
    """The certificate: what no plan can go below, and how far this one is from it."""
    baseline = found.job.baseline_seconds
    above = (found.seconds - found.bound_seconds) / baseline if baseline else 0.0
    return (
        f"no plan takes fewer than {format_bytes(found.bound_bytes)}, and inside {format_bytes(found.available_bytes)} "
        f"none is faster than {format_seconds(found.bound_seconds)}: this one is at most {above:.1%} of a step above "
        "the best"
    )


def _fullest(found: PlanReport) -> list[tuple[str, str]]:
    row, schedule = found.peak_instruction, found.peak_schedule
    rows = len(schedule.instructions)
    kinds = ", ".join(f"{KIND_NAMES[kind]} {format_bytes(nbytes)}" for kind, nbytes in found.peak_bytes_by_kind.items())
    biggest = ", ".join(f"{r.buffer} {format_bytes(r.nbytes)}" for r in found.peak_residencies[:SHOWN])
    return [
        (
            "fullest at",
            f"{row.kind} {row.what} (row {row.tick} of {rows}, {schedule.graph.name})",
        ),
        ("", f"{kinds}"),
        ("", f"biggest: {biggest}"),
    ]


def percent(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "0 %"


def peaks(predicted: int, measured: int) -> str:
    """The line that a run ends with."""
    text = f"peak       predicted {predicted:,} bytes, measured {measured:,} bytes ({format_bytes(measured)})"
    resident = resident_bytes()
    return text + (f"; the whole process had {format_bytes(resident)} resident" if resident else "")


def resident_bytes() -> int:
    """Most bytes that this process ever had in memory; 0 where the system does not tell."""
    try:
        from resource import RUSAGE_SELF, getrusage
    except ImportError:  # Windows
        return 0
    return getrusage(RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def plan_values(found: PlanReport) -> dict[str, Any]:
    """The same for programs.

    caffe_bytes     strategy `caffe`, the baseline        bvlc_bytes   what BVLC Caffe itself would take
    lower_bound_bytes, lower_bound_seconds    below which no plan can go (the seconds: none in the same room)
    feasible        whether it fits the budget            minimum_bytes   the least budget that the strategy fits
    If it does not fit, everything else is told of the leanest plan of the strategy, and `message` says why.
    """
    row, schedule = found.peak_instruction, found.peak_schedule
    return {
        "net": found.job.title,
        "strategy": found.strategy,
        "device": found.device,
        "feasible": found.feasible,
        "peak_bytes": found.peak_bytes,
        "budget_bytes": found.budget,
        "minimum_bytes": found.minimum_bytes,
        "caffe_bytes": found.job.baseline_bytes,
        "bvlc_bytes": found.job.bvlc_bytes,
        "max_live_bytes": found.program.max_live_bytes,
        "gap_bytes": found.fragmentation_bytes,
        "parameter_bytes": found.parameter_bytes,
        "host_bytes": found.program.host_bytes,
        "copied_bytes": found.offloaded_bytes,
        "recomputed_ops": found.recomputed_ops,
        "predicted_seconds": found.seconds,
        "baseline_seconds": found.job.baseline_seconds,
        "overhead": found.overhead,
        "lower_bound_bytes": found.bound_bytes,
        "lower_bound_seconds": found.bound_seconds,
        "fullest": {
            "graph": schedule.graph.name,
            "row": row.tick,
            "rows": len(schedule.instructions),
            "verb": row.kind,
            "what": row.what,
            "bytes_by_kind": found.peak_bytes_by_kind,
            "biggest": [
                {"buffer": r.buffer, "kind": kind_of(schedule.graph, r), "bytes": r.nbytes, "offset": r.offset}
                for r in found.peak_residencies[:MANY]
            ],
        },
        "fingerprint": found.job.graphs[0].fingerprint,
        "warnings": [warning for graph in found.job.graphs for warning in graph.warnings],
        "message": str(found.refusal) if found.refusal is not None else None,
    }
