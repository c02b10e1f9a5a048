"""Rows of a step, saved after every row: a step that dies or runs out of time keeps its rows, and continues after them
when it is restarted.

A line of the file is [NUMBER, ROW], appended: a later line of the same number replaces the row, and null removes it.
"""

from __future__ import annotations

import json
import math
import os
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layermem.errors import GpuLost
from tests.backends.cuda.refused import NotTried
from tools.gpu.kept import Call, Row, last_detail, last_rows, read_rows, rows_of_same_sources
from tools.gpu.quarantine import RUNNING, WITHOUT, Quarantine
from tools.gpu.sensors import Sensors

ITEM_SECONDS = 30
IN_THIS_FOLDER = Call(Path("results.json"))


@dataclass(frozen=True)
class Options:
    """Options of a step.

    small    tiny shapes, for an emulated GPU
    brief    a few rows of each kind
    seconds  time of the step, after which it begins nothing new
    nets     NAME:BATCH or NAME:BATCH:PRECISION of prototxt/, for the steps on whole nets
    call     the call to whose files the step adds
    earlier  folders and files of earlier calls, in addition to those in this call's folder
    patience factor of the time limits of items and launches; infinite on an emulated GPU, which is slow
    """

    small: bool
    brief: bool
    seconds: float
    nets: Sequence[str] = ()
    call: Call = IN_THIS_FOLDER
    earlier: Sequence[Path] = ()
    patience: float = 1.0

    @property
    def rounds(self) -> int:
        return 2 if self.small else 20

    def last_rows(self, step: str) -> list[Row]:
        """The rows of this call, or of the latest earlier call that has some."""
        return last_rows(self._folders, step)

    def last_detail(self, name: str) -> bytes | None:
        """A file that a step of this call made, or that of the latest earlier call."""
        return last_detail(self._folders, name)

    def rows_of_same_sources(self) -> list[Row]:
        """The rows of all steps of this call, and of earlier calls that ran kernels of the same sources."""
        return rows_of_same_sources(self.call, self._folders)

    @property
    def _folders(self) -> tuple[Path, ...]:
        return (self.call.results.parent, *self.earlier)


class Results:
    """Rows of one step, in a file that grows with every row; each has the GPU's clock and power of its duration.

    usable   whether this process can continue to use the GPU after a failure
    """

    def __init__(self, path: Path, options: Options, usable: Callable[[], bool] | None = None):
        self.usable, self._sensors = usable or gpu_is_usable, Sensors()
        self.path, self.options = path, options
        self._numbered = read_rows(path)
        self._next = max(self._numbered, default=-1) + 1
        self._began = time.monotonic()
        self._running: int | None = None  # number of the row of the running item
        self._families: dict[str, str] = {}  # families of the kernels that were bound
        self._without = {"without": os.environ[WITHOUT]} if os.environ.get(WITHOUT) else {}
        self.quarantine = Quarantine([*options.rows_of_same_sources(), *self.rows])
        with open(path, "a", encoding="utf-8") as file:
            file.write("\n" if path.stat().st_size else "")  # ends an incomplete line of a killed process

    @property
    def rows(self) -> list[Row]:
        return list(self._numbered.values())

    def add(self, **row: Any) -> int:
        """Add a row and return its number."""
        number, self._next = self._next, self._next + 1
        self._put(number, row | self._without | self._sensors.take())
        return number

    def _put(self, number: int, row: Row | None) -> None:
        if row is None:
            del self._numbered[number]
        else:
            self._numbered[number] = row
        append(self.path, number, row)

    def has(self, **key: Any) -> bool:
        """Whether a row has these values."""
        return any(all(row.get(name) == value for name, value in key.items()) for row in self.rows)

    def attempt(
        self, work: Callable[[], None], until: float | None = None, most: float = ITEM_SECONDS, **key: Any
    ) -> None:
        """Do an item of the step, which adds rows with `key`, unless such rows exist or the time is up (after `until`
        seconds of the step, if given).  A failure is also a row.  It ends this process only if the GPU has become
        unusable: a failed kernel destroys the context, while a refused launch changes nothing.  Work that does not
        return within `most` seconds ends the process as well."""
        if self.has(**key):
            return
        if self.late:
            if not self.has(late="all"):
                self.add(**key, late="all", says="this and what follows was not begun: the time was up")
            return
        if until is not None and self.options.seconds - self.left > until:
            self.add(**key, late="this", says="was not begun: its share of the time was up")
            return
        begun = {**key, "passed": False, "says": "the process ended in this"}
        number = self._running = self.add(**begun, running={"item": " ".join(map(str, key.values()))})
        self._limit(most)
        try:
            work()
        except NotTried as error:
            self._end({"passed": None, "says": f"not tried: {error}"})
        except Exception as error:
            row = self._numbered[number] | {"says": in_short(error)}
            self._put(number, row)
            traceback.print_exc()
            if self.is_fatal(error):
                raise  # the row stays that of a running item: quarantine.settled()
            self._end({"says": in_short(error)})
        else:
            self._put(number, None)
        finally:
            self._running = None
            signal.setitimer(signal.ITIMER_REAL, 0)

    def is_fatal(self, error: Exception) -> bool:
        """Whether this process can no longer use the GPU."""
        return isinstance(error, GpuLost) or not self.usable()

    def _end(self, columns: Row) -> None:
        """End the running item, which did not pass, with these columns."""
        assert self._running is not None
        row = {name: value for name, value in self._numbered[self._running].items() if name != RUNNING}
        self._put(self._running, row | columns)

    def _limit(self, seconds: float) -> None:
        """End this process after `seconds`, even while it waits for the GPU."""
        if math.isfinite(self.options.patience):
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, seconds * self.options.patience)

    def binds(self, kernel: str, family: str) -> None:
        """Announce the binding of a kernel, as MODULE.FUNCTION; NotTried, and a row, if it is in quarantine."""
        if reason := self.quarantine.reason(kernel):
            if not self.has(kernel=kernel):
                self.add(kernel=kernel, passed=None, says=f"not tried: {reason}")
            raise NotTried(f"{kernel}: {reason}")
        self._families[kernel] = family
        if family:
            self._know(families=sorted({*self._known.get("families", ()), family}))

    def launching(self, kernel: str, most: float | None = None) -> None:
        """Record the kernel to blame if this process ends before the next call, or within `most` seconds."""
        if most is not None:
            self._limit(most)
        self._know(kernel=kernel, family=self._families.get(kernel, ""))

    def _know(self, **what: Any) -> None:
        """Record facts about the running item."""
        if self._running is not None and self._known != self._known | what:
            self._put(self._running, {**self._numbered[self._running], RUNNING: self._known | what})

    @property
    def _known(self) -> Row:
        """Recorded facts about the running item."""
        known: Row = self._numbered[self._running][RUNNING] if self._running is not None else {}
        return known

    @property
    def left(self) -> float:
        """Remaining seconds of the step."""
        return self.options.seconds - (time.monotonic() - self._began)

    @property
    def late(self) -> bool:
        """Whether the step's time is up."""
        return self.left < 0


def append(path: Path, number: int, row: Row | None) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps([number, row]) + "\n")


def gpu_is_usable() -> bool:
    """Whether the driver still accepts calls: after a kernel error none succeeds in this process."""
    cuda = sys.modules.get("pycuda.driver")
    if cuda is None or cuda.Context.get_current() is None:
        return True
    try:
        cuda.Context.synchronize()
    except cuda.Error:
        return False
    return True


def in_short(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip() or 'without a word').splitlines()[0]}"


def times(seconds: Sequence[float]) -> Row:
    """Columns of several runs of the same work."""
    return {"ms": 1e3 * statistics.median(seconds), "min ms": 1e3 * min(seconds), "max ms": 1e3 * max(seconds)}


def all_seconds(run: Callable[[], None], clock: Callable[[Callable[[], None]], float], rounds: int) -> list[float]:
    """Seconds of `rounds` runs by `clock`, after two uncounted ones."""
    for _ in range(2):
        clock(run)
    return [clock(run) for _ in range(rounds)]


def median_seconds(run: Callable[[], None], clock: Callable[[Callable[[], None]], float], rounds: int) -> float:
    return statistics.median(all_seconds(run, clock, rounds))
