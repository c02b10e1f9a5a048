"""What a step found, kept in a file after every row: a step that dies or runs out of time leaves what it had, and one
that is started again goes on behind it.

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
    """How a step is run.

    small    tiny shapes, as an emulated GPU needs them
    brief    a few rows of each kind
    seconds  that the step has; it leaves out what it would begin after them
    nets     NAME:BATCH or NAME:BATCH:PRECISION of prototxt/, for the steps on whole nets
    call     whose files a step adds to
    earlier  folders and files of calls before, beside those in the folder of this one
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
        """Of this call, or of the last one before that has some."""
        return last_rows(self._folders, step)

    def last_detail(self, name: str) -> bytes | None:
        """A file that a step of this call has made, or one of the last call before that has it."""
        return last_detail(self._folders, name)

    def rows_of_same_sources(self) -> list[Row]:
        """Of all steps of this call, and of calls before that ran kernels of the same sources."""
        return rows_of_same_sources(self.call, self._folders)

    @property
    def _folders(self) -> tuple[Path, ...]:
        return (self.call.results.parent, *self.earlier)


class Results:
    """Rows of one step, in a file that grows by every row; each with the GPU's clock and power meanwhile.

    usable   whether this process can go on with the GPU after something went wrong
    """

    def __init__(self, path: Path, options: Options, usable: Callable[[], bool] | None = None):
        self.usable, self._sensors = usable or gpu_is_usable, Sensors()
        self.path, self.options = path, options
        self._numbered = read_rows(path)
        self._next = max(self._numbered, default=-1) + 1
        self._began = time.monotonic()
        self._running: int | None = None  # number of the row of the item
        self._families: dict[str, str] = {}  # of the kernels that were bound
        self._without = {"without": os.environ[WITHOUT]} if os.environ.get(WITHOUT) else {}
        self.quarantine = Quarantine([*options.rows_of_same_sources(), *self.rows])
        with open(path, "a", encoding="utf-8") as file:
            file.write("\n" if path.stat().st_size else "")  # ends what a killed process left of a line

    @property
    def rows(self) -> list[Row]:
        return list(self._numbered.values())

    def add(self, **row: Any) -> int:
        """Its number."""
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
        """Do a piece of the step, which adds rows with `key` in them, unless there are such rows already or the time is
        up (after `until` seconds of the step, if given).  What goes wrong is a row too.  It ends this process only if
        the GPU is of no more use to it: a kernel that failed takes the context with it, while a launch that is refused
        changes nothing.  What has not come back after `most` seconds ends it as well."""
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
                raise  # and the row is that of an item that was running: quarantine.settled()
            self._end({"says": in_short(error)})
        else:
            self._put(number, None)
        finally:
            self._running = None
            signal.setitimer(signal.ITIMER_REAL, 0)

    def is_fatal(self, error: Exception) -> bool:
        """Whether this process cannot use the GPU any more."""
        return isinstance(error, GpuLost) or not self.usable()

    def _end(self, columns: Row) -> None:
        """Of the item that was running, which did not pass."""
        assert self._running is not None
        row = {name: value for name, value in self._numbered[self._running].items() if name != RUNNING}
        self._put(self._running, row | columns)

    def _limit(self, seconds: float) -> None:
        """End this process after so long, also while it waits for the GPU."""
        if math.isfinite(self.options.patience):
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, seconds * self.options.patience)

    def binds(self, kernel: str, family: str) -> None:
        """A kernel, as MODULE.FUNCTION, is about to be bound: NotTried, and a row, if it is in quarantine."""
        if reason := self.quarantine.reason(kernel):
            if not self.has(kernel=kernel):
                self.add(kernel=kernel, passed=None, says=f"not tried: {reason}")
            raise NotTried(f"{kernel}: {reason}")
        self._families[kernel] = family
        if family:
            self._know(families=sorted({*self._known.get("families", ()), family}))

    def launching(self, kernel: str, most: float | None = None) -> None:
        """The kernel is the one to blame if this process ends before the next call; in `most` seconds, if given."""
        if most is not None:
            self._limit(most)
        self._know(kernel=kernel, family=self._families.get(kernel, ""))

    def _know(self, **what: Any) -> None:
        """Keep something of the item that is running."""
        if self._running is not None and self._known != self._known | what:
            self._put(self._running, {**self._numbered[self._running], RUNNING: self._known | what})

    @property
    def _known(self) -> Row:
        """Of the item that is running."""
        known: Row = self._numbered[self._running][RUNNING] if self._running is not None else {}
        return known

    @property
    def left(self) -> float:
        """Seconds of the step."""
        return self.options.seconds - (time.monotonic() - self._began)

    @property
    def late(self) -> bool:
        """Whether the step's time is up."""
        return self.left < 0


def append(path: Path, number: int, row: Row | None) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps([number, row]) + "\n")


def gpu_is_usable() -> bool:
    """Whether the driver still takes calls: after an error of a kernel none succeeds in this process."""
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
    """Columns of several runs of one thing."""
    return {"ms": 1e3 * statistics.median(seconds), "min ms": 1e3 * min(seconds), "max ms": 1e3 * max(seconds)}


def all_seconds(run: Callable[[], None], clock: Callable[[Callable[[], None]], float], rounds: int) -> list[float]:
    """Of `rounds` runs by `clock`, after two that do not count."""
    for _ in range(2):
        clock(run)
    return [clock(run) for _ in range(rounds)]


def median_seconds(run: Callable[[], None], clock: Callable[[Callable[[], None]], float], rounds: int) -> float:
    return statistics.median(all_seconds(run, clock, rounds))
