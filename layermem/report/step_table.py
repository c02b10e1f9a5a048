"""The time of each kind of op in a measured step: the table of `layermem train --trace`."""

from __future__ import annotations

from collections.abc import Sequence

from layermem.report.tables import print_table
from layermem.schedule.ir import Instruction, Schedule
from layermem.utils.units import format_seconds

HEADINGS = ("op", "stream", ">calls", ">time", ">share")


def print_step_table(measured: Sequence[tuple[Schedule, Sequence[float]]], whole: float, runs: int) -> None:
    """Print the times of the ops of the schedules, all calls of one kind in one row, the slowest first.

    measured   each schedule with the mean seconds of its instructions
    whole      seconds of all schedules from first op to last, the means of `runs` runs
    """
    rows: dict[tuple[str, str], list[float]] = {}
    for schedule, times in measured:
        for instruction, seconds in zip(schedule.instructions, times):
            rows.setdefault((_kind(instruction), instruction.stream), []).append(seconds)
    table = [
        [name, stream, str(len(each)), format_seconds(sum(each)), f"{100 * sum(each) / whole:.1f} %" if whole else ""]
        for (name, stream), each in sorted(rows.items(), key=lambda row: -sum(row[1]))
    ]
    calls = sum(len(each) for each in rows.values())
    total = ["step, from its first op to its last", "", str(calls), format_seconds(whole), "100.0 %" if whole else ""]
    print_table(HEADINGS, table, total=total, title=f"measured times of a step, mean of {runs}")


def _kind(instruction: Instruction) -> str:
    """The row of an instruction, such as "Convolution backward"; an op of no layer and a copy have the name of what
    they do alone."""
    op = instruction.op
    if op is None:
        return instruction.kind
    kind = "recompute" if instruction.is_recompute else instruction.kind
    return f"{op.layer_type} {kind}" if op.layer_type else type(op.record).__name__
