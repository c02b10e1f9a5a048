"""The measured times of the instructions of a step, run by run.

add        the times of one run: begin and end of each instruction, in seconds
last       those of the last run, from the earliest begin on
mean       seconds of each instruction: the mean over all runs but the first, which is slower; over it if it is the
           only one
"""

from __future__ import annotations

from collections.abc import Sequence


class StepTimes:
    def __init__(self) -> None:
        self.runs = 0
        self.last: list[tuple[float, float]] = []
        self.mean_step = 0.0  # seconds from the first begin to the last end
        self.mean: list[float] = []

    def add(self, times: Sequence[tuple[float, float]]) -> None:
        first = min((begin for begin, _ in times), default=0.0)
        self.last = [(begin - first, end - first) for begin, end in times]
        self.runs += 1
        counted = max(1, self.runs - 1)  # runs in the means, this one included
        if counted == 1:
            self.mean, self.mean_step = [0.0] * len(times), 0.0
        self.mean_step += (max((end for _, end in self.last), default=0.0) - self.mean_step) / counted
        self.mean = [mean + (end - begin - mean) / counted for mean, (begin, end) in zip(self.mean, times, strict=True)]
