"""What a step found, kept in a file after every row: a step that dies or runs out of time leaves what it had."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """How a step is run.

    small    tiny shapes, as an emulated card needs them
    brief    a few rows of each kind
    seconds  that the step has; it leaves out what it would begin after them
    nets     NAME:BATCH of prototxt/, for the step on whole nets
    """

    small: bool
    brief: bool
    seconds: float
    nets: Sequence[str] = ()

    @property
    def rounds(self) -> int:
        return 2 if self.small else 20


class Results:
    """Rows of one step, in a file of JSON that is whole at any time."""

    def __init__(self, path: Path, options: Options):
        self.path, self.options, self.rows = path, options, []
        self._began = time.monotonic()
        self._write()

    def add(self, **row: Any) -> None:
        self.rows.append(row)
        self._write()

    def _write(self) -> None:
        aside = self.path.with_suffix(".aside")
        aside.write_text(json.dumps(self.rows), encoding="utf-8")
        os.replace(aside, self.path)

    @property
    def late(self) -> bool:
        """Whether the step's time is up."""
        return time.monotonic() - self._began > self.options.seconds


def median_seconds(run: Callable[[], None], clock: Callable[[Callable[[], None]], float], rounds: int) -> float:
    """The median of `rounds` runs by `clock`, after two that do not count."""
    for _ in range(2):
        clock(run)
    return statistics.median(clock(run) for _ in range(rounds))
