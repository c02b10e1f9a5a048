"""Which runs of a benchmark other processes disturbed: by the CPU time that the machine spent outside this process.

A neighbour of a virtual machine shows only as stolen time, where the host reports it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

MOST = 0.1  # of a core that others may take
MOST_TURNS = 3  # times as many turns as are to count
STAT = Path("/proc/stat")


class Others:
    """What all other processes take."""

    def __init__(self) -> None:
        self._last = self._now()

    def cores(self) -> float:
        """Cores' worth since the last call; 0 where the system has no counters."""
        last, self._last = self._last, self._now()
        seconds, wall = (now - before for now, before in zip(self._last, last))
        return max(0.0, seconds) / wall if wall > 0 else 0.0

    @staticmethod
    def _now() -> tuple[float, float]:
        """CPU seconds of others, stolen ones included, and the clock."""
        own = os.times()
        return max(0.0, busy_seconds() - own.user - own.system), time.perf_counter()


def busy_seconds() -> float:
    """CPU seconds of all cores since the system started, and those that the host took from them."""
    if not STAT.exists():
        return 0.0
    user, nice, system, _idle, _wait, irq, softirq, stolen = map(int, STAT.read_text().split("\n", 1)[0].split()[1:9])
    return (user + nice + system + irq + softirq + stolen) / os.sysconf("SC_CLK_TCK")


def run_in_turns(
    runs: Sequence[Callable[[int], float]], count: int, disturbance: Callable[[], float] | None = None
) -> list[list[float]]:
    """What each of `runs` returns for turns 0, 1, ..., run by turns until `count` of each were undisturbed, or
    MOST_TURNS times as many: those of the undisturbed ones, of all where there is none.

    disturbance   returns the cores' worth that others took since the last call
    """
    cores = disturbance or Others().cores
    every: list[list[float]] = [[] for _ in runs]
    quiet: list[list[float]] = [[] for _ in runs]
    for turn in range(MOST_TURNS * count):
        for number, run in enumerate(runs):
            cores()
            every[number].append(run(turn))
            if cores() <= MOST:
                quiet[number].append(every[number][-1])
        if all(len(each) >= count for each in quiet):
            break
    return [counted or all_of_it for counted, all_of_it in zip(quiet, every)]
