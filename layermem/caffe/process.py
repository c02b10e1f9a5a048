"""pycaffe's names about logs and about training by several processes, of which there is one here."""

from __future__ import annotations

import sys

from layermem.errors import InputError
from layermem.report.log import Log


def init_log(prefix_or_level: object = "", *arguments: object) -> None:
    """Nothing: logs are always written to standard error."""


def log(message: str) -> None:
    """Write a line to standard error, in the form of Caffe's log."""
    Log(sys.stderr).write(message)


def has_nccl() -> bool:
    """False: a net runs in one process."""
    return False


def solver_count() -> int:
    """1: a net is trained in one process."""
    return 1


def solver_rank() -> int:
    """0: that of the only process."""
    return 0


def set_solver_count(count: int) -> None:
    """Accepts 1."""
    if count != 1:
        raise InputError(f"set_solver_count({count}) asks for several processes, and a net runs in one; use 1")


def set_solver_rank(rank: int) -> None:
    """Accepts 0."""
    if rank != 0:
        raise InputError(f"set_solver_rank({rank}) asks for several processes, and a net runs in one; use 0")


def set_multiprocess(multiprocess: bool) -> None:
    """Accepts False."""
    if multiprocess:
        raise InputError("set_multiprocess asks for several processes, and a net runs in one; use False")
