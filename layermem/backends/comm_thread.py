"""Runs instructions of the stream COMM on a separate thread, for devices without streams.

    tick      0    1    2    3    4    5
    caller    a    b         c         d          the other streams, in order
    thread              x         y               COMM, in order; y waits for c if `after` names it, and d for y

The thread lives for one run of the step.  An error on either side ends the run: the caller's side cancels the wait of
the thread, and joins it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import overload

from layermem.graph.ops import COMM
from layermem.schedule.ir import Instruction

Bound = Callable[[], object]


class CommCalls(Sequence[Bound]):
    """The bound instructions of a step; run() makes all of them.

    cancel   ends the wait of a call on COMM, from another thread
    """

    def __init__(self, instructions: Sequence[Instruction], calls: Sequence[Bound], cancel: Bound):
        self._calls, self._cancel = calls, cancel
        position = {each.tick: i for i, each in enumerate(instructions)}
        on_comm = [each.stream == COMM for each in instructions]
        # For each call: the last call of the other side that it waits for, or -1.
        waits = [
            max((position[tick] for tick in each.after if on_comm[position[tick]] != on_comm[i]), default=-1)
            for i, each in enumerate(instructions)
        ]
        self._awaited = set(waits)
        self._sides = [[(i, waits[i]) for i, comm in enumerate(on_comm) if comm == side] for side in (False, True)]

    def __len__(self) -> int:
        return len(self._calls)

    @overload
    def __getitem__(self, index: int) -> Bound: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Bound]: ...

    def __getitem__(self, index: int | slice) -> Bound | Sequence[Bound]:
        return self._calls[index]

    def run(self) -> None:
        progress = CommProgress()
        thread = threading.Thread(target=self._run_comm, args=(progress,), name="layermem-comm", daemon=True)
        thread.start()
        try:
            self._run_side(False, progress)
            progress.wait_for_end()
        except BaseException:
            if progress.error is None:  # the error began on this side
                progress.stop()
                self._cancel()
            raise
        finally:
            thread.join()

    def _run_comm(self, progress: CommProgress) -> None:
        try:
            self._run_side(True, progress)
        except BaseException as error:
            progress.end(error)
        else:
            progress.end()

    def _run_side(self, side: bool, progress: CommProgress) -> None:
        """Make the calls of one side in order, each when the call of the other side that it waits for is complete."""
        other = not side
        for index, awaited in self._sides[side]:
            progress.check()
            if awaited >= 0:
                progress.wait_for(other, awaited)
            self._calls[index]()
            if index in self._awaited:
                progress.complete(side, index)


class Stopped(Exception):
    """The caller's side has failed."""


class CommProgress:
    """The progress of both sides of one run."""

    def __init__(self) -> None:
        self.error: BaseException | None = None  # error of the thread
        self._changed = threading.Condition()
        self._complete = {False: -1, True: -1}  # the last complete call of each side
        self._ended = self._stopped = False

    def check(self) -> None:
        """Raise if the other side has failed."""
        if self.error is not None:
            raise self.error
        if self._stopped:
            raise Stopped

    def complete(self, side: bool, index: int) -> None:
        with self._changed:
            self._complete[side] = index
            self._changed.notify_all()

    def wait_for(self, side: bool, index: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._complete[side] >= index or self._ended or self._stopped)
        self.check()

    def wait_for_end(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._ended)
        self.check()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def end(self, error: BaseException | None = None) -> None:
        with self._changed:
            self.error, self._ended = error, True
            self._changed.notify_all()
