"""pycaffe's functions for logs and for training with several processes; here there is always one process."""

from __future__ import annotations

import sys

from layermem.errors import InputError
from layermem.report.log import Log


def init_log(prefix_or_level: object = "", *arguments: object) -> None:
    """Do nothing: logs are always written to standard error."""


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
    """Accept False; InputError for True."""
    if multiprocess:
        raise InputError("set_multiprocess asks for several processes, and a net runs in one; use False")
