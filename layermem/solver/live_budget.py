"""A budget that may change while training runs: its user states another one, or the free memory is another.

A file (`train --budget-file`) is looked at between iterations: only its state, unless that has changed.  A budget of
free memory (`free`, `80%free`) follows the free memory, by these rules:

    look      once a second, between iterations; after a change not before CALM_SECONDS, nor before PATIENCE times what
              planning took, so that planning takes at most a twentieth of a run
    less      the arena does not fit into the memory that there is now, because a limit was lowered: all that there is;
              or tasks of the container wait for memory for PRESSURE percent of the time: at most LESS of the arena
    more      there is MORE of the budget or above: all that there is
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress

from layermem.errors import InputError
from layermem.planning.job import Budget
from layermem.utils.files import PathName, check_path
from layermem.utils.free_memory import memory_pressure
from layermem.utils.input_files import read_lines
from layermem.utils.units import FREE

LOOK_SECONDS, CALM_SECONDS, PATIENCE = 1.0, 10.0, 20
MORE, LESS, PRESSURE = 5 / 4, 7 / 8, 10.0
WHAT, FILE_LIMIT_BYTES = "budget file", 4096  # bytes
SETTLED_NS = 10**9  # a file that changed within so long may change again without another time stamp

Resolve = Callable[[Budget], int | None]  # bytes of a budget, for an arena in place of the one in use


class LiveBudget:
    """The budget of a run.

    given    the budget as its user stated it last: that of the file `path`, if there is one, or set()
    follows  whether a budget of free memory follows it
    """

    def __init__(self, given: Budget, path: PathName | None = None, *, follows: bool = False):
        self.given, self.follows = given, follows
        self.file = None if path is None else BudgetFile(path)
        if self.file is not None and (given is None or os.path.lexists(self.file.path)):
            self.given = self.file.read()
        self._set: list[Budget] = []
        self._followed: int | None = None  # bytes that the rules of free memory state
        self._least = 0  # bytes below which no plan fits
        self._next_look = 0.0

    def set(self, budget: Budget) -> None:
        """Let the next plan have `budget`."""
        self._set = [budget]

    def is_due(self, resolve: Resolve, budget_bytes: int | None, peak_bytes: int) -> bool:
        """Whether the file states another budget than before, or the free memory is another."""
        if self.file is not None and self.file.has_changed():
            return True
        if self.follows and str(self.given).endswith(FREE) and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_SECONDS
            self._followed = self._follow(resolve, budget_bytes or 0, peak_bytes)
        return self._followed is not None

    def _follow(self, resolve: Resolve, budget_bytes: int, peak_bytes: int) -> int | None:
        """The bytes of another budget, by the rules above; None if there is no reason for one."""
        available = resolve(self.given) or 0
        if memory_pressure() >= PRESSURE:
            available = min(available, int(LESS * peak_bytes))
        is_other = available < peak_bytes or available >= MORE * budget_bytes
        return available if is_other and available >= self._least else None

    def next_bytes(self, resolve: Resolve) -> int | None:
        """The bytes of the budget to plan for now; InputError if the user states none that has a meaning."""
        followed, self._followed = self._followed, None
        if self._set:
            self.given = self._set.pop()
        elif followed is not None:
            return followed
        elif self.file is not None:
            self.given = self.file.read()
        return resolve(self.given)

    def planned(self, seconds: float, least_bytes: int = 0) -> None:
        """Note that planning took `seconds`, and that no plan fits fewer than `least_bytes`, if it was refused."""
        self._least = least_bytes
        self._next_look = time.monotonic() + max(CALM_SECONDS, PATIENCE * seconds)


class BudgetFile:
    """A file whose text is a budget.  It may be replaced at any time, vanish, or be wrong."""

    def __init__(self, path: PathName):
        self.path = os.fspath(check_path(path, "budget file"))
        self._state: object = None
        self._said = ""  # text or error at the last look

    def read(self) -> str:
        """The budget in the file; InputError if there is none."""
        state = _state_of(self.path)  # before its text, so that a change in between is seen
        self._state = None if state is None or time.time_ns() - state[0] < SETTLED_NS else state
        try:
            text = "\n".join(read_lines(self.path, what=WHAT, limit=FILE_LIMIT_BYTES)).strip()
            if not text:
                raise InputError("is empty; write a budget such as 2GiB to it", path=self.path)
        except InputError as error:
            self._said = str(error)
            raise
        self._said = text
        return text

    def has_changed(self) -> bool:
        """Whether the file has another text, or another error, than at the last look."""
        state, before = _state_of(self.path), self._said
        if state is not None and state == self._state:
            return False
        with suppress(InputError):
            self.read()
        return self._said != before


def _state_of(path: str) -> tuple[int, ...] | None:
    """Numbers by which a changed file is noticed, first the time of its last change; None without the file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ctime_ns, status.st_mtime_ns, status.st_size, status.st_ino
