"""pycaffe's functions for logs and for training with several processes; here there is always one process."""

from __future__ import annotations

import sys
import time

from layermem.errors import InputError
from layermem.report.log import Log
from layermem.utils.arguments import checked


def init_log(prefix_or_level: object = "", *arguments: object) -> None:
    """Do nothing: logs are always written to standard error."""


@checked
def log(message: str) -> None:
    """Write a line to standard error, in the form of Caffe's log."""
    Log(sys.stderr).write(message)


def has_nccl() -> bool:
    """Return False: a net runs in one process."""
    return False


def solver_count() -> int:
    """Return 1: a net is trained in one process."""
    return 1


def solver_rank() -> int:
    """Return 0, the rank of the only process."""
    return 0


def set_solver_count(count: int) -> None:
    """Accept 1; InputError for others."""
    if count != 1:
        raise InputError(f"set_solver_count({count}) asks for several processes, and a net runs in one; use 1")


def set_solver_rank(rank: int) -> None:
    """Accept 0; InputError for others."""
    if rank != 0:
        raise InputError(f"set_solver_rank({rank}) asks for several processes, and a net runs in one; use 0")


def set_multiprocess(multiprocess: bool) -> None:
    """Do nothing: set_solver_count says how many processes there are."""


class NCCL:
    """The communication of one process, which is none: `caffe.NCCL(solver, uid)` as BVLC Caffe's train.py makes it."""

    def __init__(self, solver: object, uid: object):
        """Accept what pycaffe takes, and ignore it."""

    @staticmethod
    def new_uid() -> bytes:
        """Return an identifier for processes that train together."""
        return b"\0"

    def bcast(self) -> None:
        """Do nothing: no other process waits for the parameters."""


class Timer:
    """A clock: `ms` are the milliseconds from start() to stop(), 0 before."""

    def __init__(self) -> None:
        self.ms = 0.0
        self._began: float | None = None

    def start(self) -> None:
        """Begin, unless it runs already."""
        if self._began is None:
            self._began = time.perf_counter()

    def stop(self) -> None:
        """End, and set `ms`."""
        if self._began is not None:
            self.ms, self._began = 1000 * (time.perf_counter() - self._began), None
