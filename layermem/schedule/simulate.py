"""Predicts the time of a step: each instruction starts when its stream is free and its awaited instructions are done.

compute  |--conv1--|--relu1--|..|--conv2--|      conv2 waits for the prefetch of its input
d2h                |---data---|
h2d                           |--data--|
"""

from __future__ import annotations

from dataclasses import dataclass

from layermem.planning.costs import Costs
from layermem.schedule.ir import COMPUTE, D2H, Instruction, Schedule
from layermem.schedule.joined import joined


@dataclass(frozen=True)
class Timeline:
    """Seconds from the start of the step, per instruction; `seconds` is when the last one ends."""

    start: tuple[float, ...]
    end: tuple[float, ...]
    seconds: float
    compute_seconds: float  # sum over the compute stream


def simulate(schedule: Schedule, costs: Costs) -> Timeline:
    """Predicted start and end, in seconds, of each instruction and of the step."""
    free: dict[str, float] = {}
    start: list[float] = []
    end: list[float] = []
    compute_seconds = 0.0
    followers = {each.tick for group in joined(schedule.instructions) for each in group[1:]}
    for instruction in schedule.instructions:
        begin = max([free.get(instruction.stream, 0.0), *(end[tick] for tick in instruction.after)])
        duration = instruction_seconds(schedule, instruction, costs, joined=instruction.tick in followers)
        compute_seconds += duration if instruction.stream == COMPUTE else 0
        start.append(begin)
        end.append(begin + duration)
        free[instruction.stream] = end[-1]
    return Timeline(tuple(start), tuple(end), max(end, default=0.0), compute_seconds)


def instruction_seconds(schedule: Schedule, instruction: Instruction, costs: Costs, *, joined: bool = False) -> float:
    """Return the seconds of an instruction; a `joined` one is launched together with the instruction before it."""
    if instruction.op is not None:
        return costs.op(instruction.op, joined=joined)
    nbytes = schedule.residencies[instruction.reads[0]].nbytes
    return costs.offload(nbytes) if instruction.stream == D2H else costs.prefetch(nbytes)
