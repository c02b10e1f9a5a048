"""How long a step takes on three streams: each row starts when its stream is free and what it waits for is done."""

from __future__ import annotations

from dataclasses import dataclass

from layermem.planning.costs import Costs
from layermem.schedule.ir import COMPUTE, D2H, Instruction, Schedule


@dataclass(frozen=True)
class Timeline:
    """Seconds from the start of the step, per row; `seconds` is when the last one ends."""

    start: tuple[float, ...]
    end: tuple[float, ...]
    seconds: float
    compute_seconds: float  # sum of the compute rows alone


def simulate(schedule: Schedule, costs: Costs) -> Timeline:
    free: dict[str, float] = {}
    start: list[float] = []
    end: list[float] = []
    compute = 0.0
    for instruction in schedule.instructions:
        begin = max([free.get(instruction.stream, 0.0), *(end[tick] for tick in instruction.after)])
        duration = row_seconds(schedule, instruction, costs)
        compute += duration if instruction.stream == COMPUTE else 0
        start.append(begin)
        end.append(begin + duration)
        free[instruction.stream] = end[-1]
    return Timeline(tuple(start), tuple(end), max(end, default=0.0), compute)


def row_seconds(schedule: Schedule, instruction: Instruction, costs: Costs) -> float:
    if instruction.op is not None:
        return costs.op(instruction.op)
    nbytes = schedule.residencies[instruction.reads[0]].nbytes
    return costs.offload(nbytes) if instruction.stream == D2H else costs.prefetch(nbytes)
